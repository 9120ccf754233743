// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "app/base/error_report.h"
#include "app/base/version.h"
#include "app/bench/calibrate_cpu.h"
#include "app/bench/model_bytes.h"
#include "app/build/read_config.h"
#include "app/commands/write_result.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "parallel/world/world.h"

namespace convoy {

void keep_largest_size(DataOptions& data) {
  if (data.train_sizes.empty()) return;
  data.train_sizes = {*std::max_element(data.train_sizes.begin(), data.train_sizes.end())};
  data.size_milestones.clear();
}

int count_bytes(const World& world, const BenchArguments& arguments) {
  if (world.size() > 1)
    fail_usage("--model-bytes: counts a step of one rank, and there are {} (start one)", world.size());
  check_result_path("--json", arguments.json);
  Config config = read_config(arguments.config, arguments.overrides, DeviceCheck::kNone);
  print_note(config.note);
  keep_largest_size(config.data);
  add_places(config, [&] {
    const ModelBytes bytes = count_model_bytes(config);
    std::cout << model_bytes_report(bytes, arguments.bandwidth) << std::flush;
    if (arguments.json.empty()) return;
    nlohmann::ordered_json document{{"program_version", program_version()}};
    document.update(model_bytes_json(bytes));
    write_bench_json(arguments.json, document);
  });
  return 0;
}

int calibrate(const World& world, const BenchArguments& arguments) {
  if (world.size() > 1) fail_usage("--calibrate-cpu: times this CPU, and there are {} ranks (start one)", world.size());
  check_result_path("--json", arguments.json);
  const std::vector<Calibration> calibrations = calibrate_cpu(arguments.threads);
  std::cout << fmt::format("cpu, {}, {}\n", OnednnBackend::library_description(), counted(arguments.threads, "thread"))
            << calibration_report(calibrations) << std::flush;
  if (arguments.json.empty()) return 0;
  nlohmann::ordered_json document{{"program_version", program_version()},
                                  {"library", OnednnBackend::library_description()},
                                  {"threads", arguments.threads}};
  document.update(calibration_json(calibrations));
  write_bench_json(arguments.json, document);
  return 0;
}

void write_bench_json(const std::string& path, const nlohmann::ordered_json& document) {
  const std::string text = document.dump(2) + "\n";
  write_result("--json", path, std::as_bytes(std::span(text)));
}

}  // namespace convoy
