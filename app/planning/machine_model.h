// SPDX-License-Identifier: Apache-2.0
//
// What planning uses of a machine and a model on it: measured here (calibrate.h) or computed from stated figures
// (stated_machine.h). Plain numbers, so that predictions are pure functions of it. docs/planner.md explains its terms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/planning/all_reduce.h"
#include "app/planning/gpu_costs.h"
#include "app/planning/order_statistics.h"
#include "parallel/schedule/unit_costs.h"

namespace convoy {

/// Costs of all units for a microbatch of so many samples.
struct SizedCosts {
  std::int64_t samples = 0;
  std::vector<UnitCost> units;
};

/// What costs were measured for: tells models and precisions apart.
struct MeasuredModel {
  struct Unit {
    std::string name;
    std::int64_t outputs = 0;     ///< elements, of one sample
    std::int64_t parameters = 0;  ///< that learn
  };
  std::string precision;  ///< train.precision
  std::vector<Unit> units;
};

/// What a training takes beside its steps; 0: not counted.
struct JobFigures {
  double startup_seconds = 0;              ///< until the first step
  double checkpoint_bytes_per_second = 0;  ///< at which a checkpoint's state leaves the rank while training waits
  double gpu_watts = 0, node_watts = 0;    ///< of a GPU, and of the rest of a node, while training
  bool evaluates = true, checkpoints = true;
};

struct MachineModel {
  std::string name;                       ///< for people
  std::vector<SizedCosts> sizes;          ///< measured, in rising order; empty: from `work`
  MeasuredModel measured;                 ///< that `sizes` are of
  std::shared_ptr<const ModelWork> work;  ///< of the model, on `gpu`
  GpuFigures gpu;
  Cluster cluster;
  double optimizer_seconds = 0;  ///< per byte of float32 parameters
  double input_seconds = 0;      ///< of one sample, before the first unit
  double crowding = 1;           ///< time with all ranks computing over time with one
  double memory_bytes = 0;       ///< of a rank; 0: no limit
  bool sends = true;             ///< activations between stages take time
  bool reduces = true;           ///< sums of gradients take time
  bool overlaps = false;         ///< buckets of gradients are reduced during the backward; else all after it
  double contention = 0;         ///< share of its speed that computing loses during a reduction, 0 to 1
  double step_seconds = 0;       ///< of each step, whatever its size
  double jitter = 0;             ///< standard deviation of a rank's step over its mean
  JitterDistribution jitter_distribution = JitterDistribution::kNormal;
  double input_samples_per_second = 0;  ///< that a node can read and prepare; 0: no limit
  JobFigures job;

  /// The number of units of the model.
  [[nodiscard]] std::size_t units() const { return sizes.empty() ? work->units.size() : sizes.front().units.size(); }
  /// Costs for a microbatch of `samples`. Measured ones are interpolated linearly between the two nearest sizes, beyond
  /// them in proportion.
  [[nodiscard]] std::vector<UnitCost> costs(std::int64_t samples) const;
};

/// A machine of measured costs as JSON.
[[nodiscard]] std::string machine_json(const MachineModel& machine);
/// Reads it back. Throws a usage Error naming the file when it is none, holds impossible numbers, or was measured for
/// anything but `model`.
[[nodiscard]] MachineModel read_machine(const std::string& path, const MeasuredModel& model);

}  // namespace convoy
