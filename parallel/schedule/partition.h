// SPDX-License-Identifier: Apache-2.0
//
// The split points of a model: one contiguous range of units for each virtual stage of a schedule. Pure functions, so
// ranks with the same costs find the same partition. Invariant: it covers all units in order, and no range is empty.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "layers/model.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulator.h"
#include "parallel/schedule/unit_costs.h"

namespace convoy {

/// By virtual stage.
using Partition = std::vector<UnitRange>;

/// What a stage may take.
struct MemoryLimit {
  double bytes = 0;            ///< 0: no limit
  double optimizer_slots = 1;  ///< floats of optimizer state per parameter
};

/// The partition that makes the slowest stage as fast as can be (its chunks' forward and backward times, and the time
/// for its messages at a nominal bandwidth), then the fewest bytes between stages, within the limit. Throws a usage
/// Error when there are fewer units than virtual stages, or when no partition fits the limit.
[[nodiscard]] Partition partition_by_cost(const Schedule& schedule, std::span<const UnitCost> costs,
                                          const MemoryLimit& limit);

/// Split points before each of these units. Throws a usage Error that names what is unknown, out of order or missing.
[[nodiscard]] Partition partition_at_units(const Schedule& schedule, std::span<const UnitInfo> units,
                                           std::span<const std::string> first_units);

/// The unit ranges of one stage, by chunk.
[[nodiscard]] std::vector<UnitRange> stage_chunks(const Schedule& schedule, const Partition& partition, int stage);

/// The input of the simulator, except links, reduction and optimizer.
[[nodiscard]] std::vector<ChunkCost> chunk_costs(const Partition& partition, std::span<const UnitCost> costs,
                                                 double optimizer_slots);

}  // namespace convoy
