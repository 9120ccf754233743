// SPDX-License-Identifier: Apache-2.0
//
// Which checkpoint a start of a run resumes from. Relies on io/checkpoint for the files and on run_record.h for the
// identity of the run. Called on rank 0. Changes nothing on disk.
//
// Invariants: a run that has, or had, checkpoints of its own never starts over; checkpoint.resume = "never" or a file
// applies once per run; a checkpoint of another run is used only if checkpoint.resume names it.
#pragma once

#include <string>
#include <vector>

#include "app/build/run_record.h"
#include "app/config/config.h"
#include "io/checkpoint/checkpoint_folder.h"

namespace convoy {

struct ResumeChoice {
  std::string file;                ///< empty: a fresh start
  bool named = false;              ///< by the user: it may be of another run, data set or loss
  bool in_folder = false;          ///< one of the checkpoints in the run's folder of them, or a second copy of one
  std::string reason;              ///< why this one, where that is not obvious; for people
  std::vector<std::string> notes;  ///< for people
  RunRecord record;                ///< to be written when training begins
};

/// Throws an Error with exit code 1 if the checkpoint to resume from cannot be read or has vanished (a retry may help),
/// and with 2 if no checkpoint is valid, or if they are those of another run. `warn` receives skipped checkpoints.
[[nodiscard]] ResumeChoice choose_checkpoint(const Config& config, const WarnCallback& warn);

}  // namespace convoy
