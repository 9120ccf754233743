// SPDX-License-Identifier: Apache-2.0
//
// Runs a schedule against a cost model instead of a machine: when does each action start and end, how long is the
// step, how much memory does each rank need. Pure functions. A link carries one message at a time in each direction;
// messages start when their producer ends and cost their receiver nothing but waiting.
#pragma once

#include <vector>

#include "parallel/schedule/schedule.h"

namespace convoy {

/// One microbatch through one virtual stage.
struct ChunkCost {
  double forward = 1, backward_input = 1, backward_weight = 1;  ///< seconds; a whole backward is the sum of its halves
  double output_bytes = 0;    ///< of the activation handed to the next virtual stage, and of its gradient
  double cache_bytes = 0;     ///< kept from forward to backward
  double resident_bytes = 0;  ///< parameters, gradients and optimizer state
};

struct Link {
  double latency = 0;           ///< seconds from the end of the producer to the first byte
  double bytes_per_second = 0;  ///< 0: infinitely fast
  [[nodiscard]] double seconds(double bytes) const {
    return latency + (bytes_per_second > 0 ? bytes / bytes_per_second : 0);
  }
};

/// An all-reduce of part of a stage's gradients.
struct BucketCost {
  int chunk = 0;       ///< it is full during the last microbatch's backward of this chunk of the stage,
  double ready = 1;    ///< when this share of that backward has passed, 0 to 1
  double seconds = 0;  ///< of the all-reduce
};

struct CostModel {
  std::vector<ChunkCost> chunks;  ///< by virtual stage
  std::vector<Link> links;        ///< between stage i and i + 1, by i; the last one between the last stage and stage 0
  std::vector<std::vector<BucketCost>> buckets;  ///< by stage: reduced over the replicas in this order, one at a time
  double contention = 0;          ///< share of its speed that computing loses while a reduction is under way, 0 to 1
  std::vector<double> optimizer;  ///< by stage: seconds of the update
};

/// Every chunk and every whole action alike: forward 1, both halves of backward 1, nothing else costs anything.
[[nodiscard]] CostModel unit_costs(const Schedule& schedule);

struct TimedAction {
  Action action;
  double start = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<TimedAction>> stages;  ///< compute, reduction and step, in the order of their schedule
  double seconds = 0;                            ///< from the first start to the last end
  std::vector<double> idle;  ///< by stage: its time from its first compute action to its last, less what it computes
  std::vector<double> peak_bytes;  ///< by stage: resident, and the most caches held at a time

  /// The largest of `idle`: the bubble as the zero-bubble papers count it.
  [[nodiscard]] double bubble() const;
};

/// Sends and receives in `schedule` are skipped: it may have them or not. Throws Error naming the actions that wait
/// for each other when the order cannot be run.
[[nodiscard]] Timeline simulate(const Schedule& schedule, const CostModel& costs);

}  // namespace convoy
