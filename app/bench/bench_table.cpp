// SPDX-License-Identifier: Apache-2.0
#include "app/bench/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/bench/bench_points.h"
#include "app/build/build_run.h"
#include "layers/base/counted.h"
#include "layers/base/median.h"
#include "parallel/world/world.h"

namespace convoy {

void print_head(const World& world, const Run& run, bool data, bool device_varies) {
  std::cout << fmt::format(
      "{}, {}\n",
      device_varies ? run.backend->name() + " with the device options of each point" : run.backend->description(),
      counted(world.size(), "rank"));
  if (data) {
    std::cout << fmt::format("{:<40} {:>3} {:>14} {:>10} {:>10} {:>13} {:>16}\n", "point", "run", "loader threads",
                             "batch ms", "samples/s", "CPU ms/sample", "loader ms/sample");
    return;
  }
  std::cout << fmt::format("{:<40} {:>3} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "point", "run", "step ms",
                           "samples/s", "forward", "backward", "comm wait", "optimizer", "peak MiB");
}

void print_data_row(const BenchPoint& point, std::int64_t repeat, const nlohmann::ordered_json& result) {
  std::cout << fmt::format("{:<40} {:>3} {:>14} {:>10.2f} {:>10.1f} {:>13.3f} {:>16.3f}\n",
                           point.words.empty() ? "-" : point.words, repeat, result["loader_threads"].get<int>(),
                           1e3 * median(result["step_seconds"]), result["images_per_second"].get<double>(),
                           1e3 * result["processor_seconds_per_image"].get<double>(),
                           1e3 * result["loader_processor_seconds_per_image"].get<double>())
            << std::flush;
}

void print_row(const BenchPoint& point, std::int64_t repeat, const nlohmann::ordered_json& result) {
  const auto& phases = result["phases"];
  const auto ms = [&](std::initializer_list<const char*> names) {
    double sum = 0;
    for (const char* name : names) sum += phases.value(name, 0.0);
    return 1e3 * sum;
  };
  const auto& memory = result["peak_memory_bytes"];
  std::cout << fmt::format("{:<40} {:>3} {:>10.2f} {:>10.1f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.0f}\n",
                           point.words.empty() ? "-" : point.words, repeat, 1e3 * median(result["step_seconds"]),
                           result["images_per_second"].get<double>(), ms({"forward", "loss"}), ms({"backward"}),
                           ms({"communication_wait", "scatter", "broadcast", "gather", "scatter_gradients", "reduce"}),
                           ms({"optimizer"}),
                           static_cast<double>(*std::max_element(memory.begin(), memory.end())) / 1048576)
            << std::flush;
}

void print_reduction(const nlohmann::ordered_json& speed) {
  std::cout << fmt::format(
      "  its gradients: {:.1f} MB summed in {:.2f} ms, {:.1f} GB/s on the bus (copied in {:.2f} ms)",
      1e-6 * speed["bytes"].get<double>(), 1e3 * speed["seconds"].get<double>(),
      1e-9 * speed["bus_bytes_per_second"].get<double>(), 1e3 * speed["copy_seconds"].get<double>());
  if (speed.contains("hidden")) std::cout << fmt::format(", {:.0f} % hidden", 100 * speed["hidden"].get<double>());
  std::cout << "\n" << std::flush;
}

}  // namespace convoy
