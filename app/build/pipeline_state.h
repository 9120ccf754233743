// SPDX-License-Identifier: Apache-2.0
//
// Gathers the state of all stages on rank 0, and scatters it. Each stage exchanges only its own tensors. A head that is
// divided over the replicas is left to head_state.h. All functions but slots_of() are collective.
#pragma once

#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "io/checkpoint/checkpoint.h"

namespace convoy {

/// The slot of the average of the weights, behind those of the optimizer.
inline constexpr const char* kAverageSlot = "ema";

/// Parameters and buffers, and optimizer state, as in a Checkpoint; and the average of the weights as a further slot,
/// if the run has one.
struct StateTensors {
  std::vector<HostTensor> model;
  std::vector<OptimizerSlot> optimizer;
};

/// The optimizer's slots, and the average.
[[nodiscard]] Optimizer::Slots slots_of(const Run& run);

/// Returns the state of all stages on rank 0, from replica 0; incomplete on other ranks. `reuse`: an earlier result
/// whose memory is reused.
StateTensors gather_state(Run& run, StateTensors reuse = {});

/// Copies rank 0's `state` (ignored on other ranks) into all stages of all replicas. If it has no optimizer slots,
/// those of the run are unchanged. Parameters whose names begin with `skip` may be missing and are then unchanged.
void scatter_state(Run& run, const StateTensors& state, const std::string& source, const std::string& skip = "");

}  // namespace convoy
