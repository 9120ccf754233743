// SPDX-License-Identifier: Apache-2.0
//
// Predicts layouts with the simulator and ranks them. Pure functions of config, units and machine model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "app/build/build_layout.h"
#include "app/planning/machine_model.h"

namespace convoy {

struct Prediction {
  Layout layout;
  std::int64_t global_batch = 0;
  Timeline timeline;
  double seconds = 0;     ///< of a step, until its slowest rank has ended
  double peak_bytes = 0;  ///< of the rank that needs most
  [[nodiscard]] double images_per_second() const { return static_cast<double>(global_batch) / seconds; }
  /// Idle share of the stage that idles most.
  [[nodiscard]] double bubble() const { return timeline.bubble() / seconds; }
};

/// Sets the peaks by stage.
void set_memory(Prediction& prediction, std::vector<double> bytes);

/// One layout, cut by the machine's costs (or as the config says, when `units` are given and it names them).
[[nodiscard]] Prediction predict(Layout layout, const Config& config, const MachineModel& machine,
                                 std::int64_t global_batch);

/// Bytes that a rank of each stage of a layout needs for a batch of that size.
using LayoutMemory = std::function<std::vector<double>(const Layout& layout, std::int64_t global_batch)>;
/// By rehearsal (app/build/memory_prediction.h), for a config, data and device that outlive it. host_bytes: what a
/// process has before.
[[nodiscard]] LayoutMemory rehearsed_memory(const Config& config, const Dataset& data, const DeviceChoice& device,
                                            double host_bytes);

/// The best `top` layouts for that many ranks: every number of stages, schedule and number of microbatches that suits
/// the batch and the model and fits in memory, if need be with recomputed blocks; the fastest first. memory: checks
/// them, in place of the sum of parameters and caches. after_layout: called between them; may throw, which ends the
/// search. Throws a usage Error when there is none.
[[nodiscard]] std::vector<Prediction> best_layouts(const Config& config, const MachineModel& machine, int ranks,
                                                   std::int64_t global_batch, int top, const LayoutMemory& memory = {},
                                                   const std::function<void()>& after_layout = {});

}  // namespace convoy
