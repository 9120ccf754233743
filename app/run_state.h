// SPDX-License-Identifier: Apache-2.0
//
// Where a run stands, and its way into and out of checkpoints. All ranks call restore together; rank 0 captures.
#pragma once

#include <cstdint>
#include <string>

#include "app/build_run.h"
#include "io/checkpoint.h"

namespace convoy {

struct RunState {
  std::int64_t step = 0;          ///< optimizer updates done
  std::int64_t epoch = 0;         ///< epochs done
  std::int64_t samples_seen = 0;  ///< of this epoch
  std::string source;             ///< the checkpoint it was restored from; empty for a fresh start
};

/// Rank 0 only: everything that a run needs to go on, copied out of the backend.
Checkpoint capture_checkpoint(Run& run, const RunState& state);

/// Looks for what checkpoint.resume names, loads it on rank 0 and hands it to all. A fresh start when there is none.
/// Warnings about damaged files go to stderr (rank 0).
RunState restore_run(Run& run);

/// Only the model's parameters and buffers of this file, on all ranks.
void load_model(Run& run, const std::string& file);

}  // namespace convoy
