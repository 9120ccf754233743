// SPDX-License-Identifier: Apache-2.0
//
// How fast the gradients of a run are summed over its replicas when nothing else happens, beside the rate at which the
// ranks can copy: for `convoy bench`. Invariant: nothing here is part of a training step.
#pragma once

#include <cstdint>

#include "app/build/build_run.h"

namespace convoy {

struct ReductionSpeed {
  std::int64_t bytes = 0;           ///< of the gradients of one replica's stage
  double seconds = 0;               ///< of their all-reduce, all at once; the median
  double bus_bytes_per_second = 0;  ///< 2 (n - 1) / n bytes / seconds for n replicas, as nccl-tests count
  double copy_seconds = 0;          ///< in which every rank copies as many bytes at the same time; the median
  double hidden = 0;                ///< share of `seconds` that a step does not wait for; data parallelism only
};

/// Every rank calls it; gradients are overwritten. step_wait: mean seconds that a step of this rank has waited for
/// other ranks. Meant for several replicas that keep gradients themselves (not scatter mode).
[[nodiscard]] ReductionSpeed time_reduction(Run& run, double step_wait);

}  // namespace convoy
