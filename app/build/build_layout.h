// SPDX-License-Identifier: Apache-2.0
//
// How ranks share a model: mesh, schedule and cut, from the [parallel] section; for "auto", from measured costs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/build/device_choice.h"
#include "app/config/config.h"
#include "io/data/dataset.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/mesh.h"
#include "parallel/schedule/partition.h"
#include "parallel/schedule/schedule.h"

namespace convoy {

struct Layout {
  Mesh mesh;
  Schedule schedule;
  Partition partition;
  std::vector<UnitCost> costs;  ///< of the units, when they were measured
  bool recompute = false;       ///< planned with model.recompute = "blocks"

  /// Samples of a microbatch of a full batch.
  [[nodiscard]] std::int64_t microbatch(std::int64_t global_batch) const {
    return global_batch / (mesh.replicas() * std::int64_t{schedule.microbatches});
  }
};

/// Mesh and schedule for this many ranks; the partition is one range of all units, or empty. Throws a usage Error
/// when they do not suit the config. Pure.
[[nodiscard]] Layout plan_layout(const Config& config, int ranks);

/// train.global_batch_size, or the next larger batch that these ranks share in equal parts.
[[nodiscard]] std::int64_t batch_for(const Config& config, int ranks);

/// Throws an Error with exit code 75 if this rank has been told to stop while `doing` ("staging the data"). Long work
/// calls it after each unit of it, where agree() takes it to all ranks. May be empty.
using CheckStop = std::function<void(const std::string& doing)>;

/// Costs of one microbatch of `samples` through units first, first + step, ..., measured on this rank's device.
/// check_stop is called after each round.
[[nodiscard]] std::vector<UnitCost> measure_units(const Config& config, const Dataset& data, std::int64_t samples,
                                                  const DeviceChoice& device, int first, int step,
                                                  const CheckStop& check_stop = {});

/// The same of all units, which the ranks share among them. Every rank calls it.
[[nodiscard]] std::vector<UnitCost> measure_costs(const Config& config, const Dataset& data, std::int64_t samples,
                                                  const DeviceChoice& device, Communicator& all,
                                                  const CheckStop& check_stop = {});

/// Cuts the model as the config says; `costs` are used for "auto" only, and memory_bytes, what a rank has, where the
/// config does not say it.
void cut_model(Layout& layout, const Config& config, const std::vector<UnitInfo>& units, double memory_bytes);

/// "stem to layer2.3 (8 units, 1444928 parameters)" for each stage, for people; with measured costs their share of the
/// time, too.
[[nodiscard]] std::vector<std::string> describe_stages(const Layout& layout, const std::vector<UnitInfo>& units);

}  // namespace convoy
