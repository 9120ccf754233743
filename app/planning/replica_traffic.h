// SPDX-License-Identifier: Apache-2.0
//
// What the replicas of a layout send each other in a step, and how long it takes: gradients, and with
// parallel.shard_optimizer updated parameters, with parallel.shard_head what the head needs of all samples.
#pragma once

#include <cstdint>
#include <vector>

#include "app/build/build_layout.h"
#include "app/planning/machine_model.h"

namespace convoy {

/// The reductions of a stage's gradients: its buckets as the backward fills them, or all at once behind it. A sharded
/// optimizer's are reduce-scatters, all others all-reduces; the gradients of a sharded head do not travel.
[[nodiscard]] std::vector<BucketCost> bucket_costs(const Layout& layout, const Config& config,
                                                   const MachineModel& machine, int stage);

/// Seconds in which a stage waits for updated parameters from the replicas of a sharded optimizer: of their all-gather
/// what the next forward does not hide. Recorded steps and averages of the weights hide nothing.
[[nodiscard]] double gather_seconds(const Layout& layout, const Config& config, const MachineModel& machine, int stage);

/// Seconds of the messages of a microbatch that a sharded head needs.
struct HeadTraffic {
  double forward = 0;   ///< the features of all samples, and three reductions of numbers of a sample
  double backward = 0;  ///< the sums of the gradients of the features
};
/// samples: of a microbatch.
[[nodiscard]] HeadTraffic head_traffic(const Layout& layout, const Config& config, const MachineModel& machine,
                                       std::int64_t samples);

/// The costs of units as a rank has them: with a sharded head it keeps and updates a share of the last unit's
/// parameters. Its products stay the same: a share of the classes for the samples of all replicas.
[[nodiscard]] std::vector<UnitCost> costs_of_rank(std::vector<UnitCost> costs, const Config& config, int replicas);

}  // namespace convoy
