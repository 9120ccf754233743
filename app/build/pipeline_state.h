// SPDX-License-Identifier: Apache-2.0
//
// The state of all stages on rank 0, and back. A stage sends and gets its own tensors only. All ranks call these
// functions together.
#pragma once

#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "io/checkpoint/checkpoint.h"

namespace convoy {

/// Parameters and buffers, and optimizer state, as in a Checkpoint.
struct StateTensors {
  std::vector<HostTensor> model;
  std::vector<OptimizerSlot> optimizer;
};

/// All stages' on rank 0, from the stages of replica 0; something incomplete elsewhere.
/// An earlier result handed back as `reuse` lends its memory.
StateTensors gather_state(Run& run, StateTensors reuse = {});

/// Rank 0's `state` (ignored elsewhere), which belongs to the model, into every stage of every replica. Without
/// optimizer slots in it those of the run stay. Parameters whose name begins with `skip` may be missing and then stay,
/// too.
void scatter_state(Run& run, const StateTensors& state, const std::string& source, const std::string& skip = "");

}  // namespace convoy
