// SPDX-License-Identifier: Apache-2.0
//
// The stated figures of a machine of GPUs: a small TOML file (app/configs/machines/), read and written. One table lists
// the keys, what is allowed, and which figures a fit may change (machine_fit.h). Nothing here knows a model.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "app/planning/order_statistics.h"

namespace convoy {

/// As in the file: seconds, bytes, FLOPs, watts. 0 where a figure is left out.
struct MachineFigures {
  std::string name;
  double ranks_per_node = 0;
  double flops = 0, flops_efficiency = 0, multiprocessors = 0;
  double memory_bytes_per_second = 0, memory_efficiency = 0, memory_gb = 0;
  double element_bytes = 0;
  double kernel_seconds = 0, step_seconds = 0;
  double contention = 0, jitter = 0;
  JitterDistribution jitter_distribution = JitterDistribution::kNormal;
  double node_latency = 0, node_bandwidth = 0, node_shared_bandwidth = 0;
  double network_latency = 0, network_bandwidth = 0, network_cards = 0;
  bool network_reduces = false;
  double input_samples_per_second = 0;
  double startup_seconds = 0, checkpoint_bytes_per_second = 0;
  double gpu_watts = 0, node_watts = 0;
};

/// A number of the file.
struct Figure {
  std::string_view key;  ///< "network.latency"
  double MachineFigures::*value;
  bool required = false;   ///< and above 0; others may be left out or 0, which leaves out what they describe
  bool whole = false;      ///< a whole number
  double maximum = 1e300;  ///< that is allowed
  double spread = 0;       ///< of a fit: standard deviation of the logarithm around what is stated; 0: not fitted
  std::string_view help{};
};
[[nodiscard]] std::span<const Figure> machine_figures();

/// Throws a usage Error naming file, line and key.
[[nodiscard]] MachineFigures read_figures(const std::string& path);
/// A file that read_figures() reads back to the same numbers, with `comment` (lines without "#") above.
[[nodiscard]] std::string figures_toml(const MachineFigures& figures, const std::string& comment);

}  // namespace convoy
