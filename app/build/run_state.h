// SPDX-License-Identifier: Apache-2.0
//
// Where a run stands, and its way into and out of checkpoints. Rank 0 alone touches files; the stages of replica 0
// exchange their parts with it, one after the other, and each passes its own on to the other replicas. All ranks call
// these functions together.
#pragma once

#include <cstdint>
#include <string>

#include "app/build/build_run.h"
#include "io/checkpoint/checkpoint.h"

namespace convoy {

struct RunState {
  std::int64_t step = 0;          ///< optimizer updates done
  std::int64_t epoch = 0;         ///< epochs done
  std::int64_t samples_seen = 0;  ///< of this epoch
  std::string source;             ///< the checkpoint it was restored from; empty for a fresh start
};

/// Whether the epochs or steps that the config asks for are done.
[[nodiscard]] bool is_finished(const Config& config, const RunState& state);

/// Everything that a run needs to resume, copied out of the backend of every stage. Complete on rank 0 only. An earlier
/// result handed back as `reuse` lends its memory.
Checkpoint capture_checkpoint(Run& run, const RunState& state, Checkpoint reuse = {});

/// Looks for what checkpoint.resume names, loads it on rank 0 and hands it to all. A fresh start when there is none.
/// Warnings about damaged files go to stderr (rank 0).
RunState restore_run(Run& run);

/// Only the model's parameters and buffers of this file.
void load_model(Run& run, const std::string& file);

/// What model.weights names, if anything.
void load_start_weights(Run& run);

}  // namespace convoy
