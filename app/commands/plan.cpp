// SPDX-License-Identifier: Apache-2.0
//
// convoy plan: which layout of so many ranks is predicted to be the fastest, from costs measured here (--calibrate,
// which keeps them in a file) or from stated figures of a machine (--machine).
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "app/base/examples.h"
#include "app/base/memory_limit.h"
#include "app/build/build_backend.h"
#include "app/build/build_data.h"
#include "app/build/build_model.h"
#include "app/build/build_run.h"
#include "app/commands/commands.h"
#include "app/planning/calibrate.h"
#include "app/planning/predict.h"
#include "app/planning/stated_machine.h"
#include "app/train/stop.h"
#include "io/log/trace_file.h"
#include "layers/base/error.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;

std::string describe_layout(const Layout& layout) {
  const Schedule& s = layout.schedule;
  std::string words = fmt::format("{} x {}  {}", layout.mesh.replicas(), s.stages, s.name);
  if (s.chunks > 1) words += fmt::format(" ({} chunks)", s.chunks);
  if (layout.recompute) words += ", recompute";
  return words;
}

void print_head() {
  std::cout << fmt::format("{:<10} {:<36} {:>12} {:>10} {:>11} {:>13} {:>7} {:>10}\n", "ranks", "replicas x stages",
                           "microbatches", "samples", "step ms", "samples/s", "bubble", "GB/rank");
}

void print_row(const std::string& label, const Prediction& p) {
  std::cout << fmt::format("{:<10} {:<36} {:>12} {:>10} {:>11.2f} {:>13.1f} {:>6.1f}% {:>10.3f}\n", label,
                           describe_layout(p.layout), p.layout.schedule.microbatches,
                           p.layout.microbatch(p.global_batch), 1e3 * p.seconds, p.images_per_second(),
                           100 * p.bubble(), p.peak_bytes / 1e9)
            << std::flush;
}

Json prediction_json(const Prediction& p, int ranks, bool own) {
  return {{"ranks", ranks},
          {"own_layout", own},
          {"replicas", p.layout.mesh.replicas()},
          {"stages", p.layout.mesh.stages()},
          {"schedule", p.layout.schedule.name},
          {"chunks", p.layout.schedule.chunks},
          {"microbatches", p.layout.schedule.microbatches},
          {"recompute", p.layout.recompute},
          {"global_batch_size", p.global_batch},
          {"step_seconds", p.seconds},
          {"images_per_second", p.images_per_second()},
          {"bubble_share", p.bubble()},
          {"peak_bytes", p.timeline.peak_bytes}};
}

void write_timeline(const std::string& path, const Prediction& p) {
  std::vector<RankTrace> ranks;
  for (std::size_t stage = 0; stage < p.timeline.stages.size(); ++stage) {
    RankTrace& rank = ranks.emplace_back();
    rank.name = fmt::format("stage {} (simulated)", stage);
    for (const TimedAction& timed : p.timeline.stages[stage]) {
      rank.events.push_back({action_name(timed.action), trace::Track::kCompute, 1, timed.start, timed.end});
    }
  }
  write_trace_file(path, ranks);
}

class Planner {
 public:
  Planner(World& world, const PlanArguments& arguments) : world_(world), arguments_(arguments) {
    LoadedConfig loaded = load_config(world.ranks(), arguments.config, arguments.overrides);
    config_ = std::move(loaded.config);
    all_ = std::move(loaded.communicator);
    stop_.emplace(config_.run.stop_signals, std::nullopt);
    const auto open_data = [&] { data_ = build_dataset(config_, config_.data.train, "data.train"); };
    agree(*all_, open_data, "opening the data");
    agree(
        *all_, [&] { device_ = choose_device(config_, rank_place(world)); }, "choosing the device");
    check_devices(*all_, config_, device_, world.host());
  }

  void run() {
    const MachineModel machine = machine_model();
    agree(
        *all_,
        [&] {
          if (world_.rank() == 0) report(machine);
        },
        "planning");
  }

 private:
  MachineModel machine_model() {
    const std::string file = arguments_.costs.empty() ? run_folder(config_) + "/costs.json" : arguments_.costs;
    MachineModel machine;
    if (arguments_.calibrate) {
      machine = calibrate(config_, *data_, device_, world_.ranks(), *all_, check_stop_);
      const auto keep = [&] {
        if (world_.rank() != 0) return;
        const std::filesystem::path folder = std::filesystem::path(file).parent_path();
        std::error_code ignored;
        if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
        write_machine(file, machine);
      };
      agree(*all_, keep, "writing the costs");
      if (world_.rank() == 0) std::cout << "measured costs are in " << file << "\n";
      return machine;
    }
    const auto get = [&] {
      if (world_.rank() != 0) return;
      machine = arguments_.machine.empty()
                    ? read_machine(file)
                    : stated_machine(find_example(arguments_.machine, ExampleKind::kMachine), config_, *data_, device_);
    };
    agree(*all_, get, "reading the costs");
    return machine;
  }

  void report(const MachineModel& machine) {
    std::cout << machine.name << "\n";
    print_head();
    Json results = Json::array();
    const auto after_layout = [this] { check_stop_("planning"); };
    for (const int ranks : arguments_.ranks) {
      const std::int64_t batch =
          arguments_.samples_per_rank > 0 ? arguments_.samples_per_rank * ranks : config_.train.global_batch_size;
      Config config = config_;
      config.train.global_batch_size = batch;
      const LayoutMemory memory = rehearsed_memory(config, *data_, device_, process_memory().resident);
      for (const Prediction& p : best_layouts(config, machine, ranks, batch, arguments_.top, memory, after_layout)) {
        print_row(std::to_string(ranks), p);
        results.push_back(prediction_json(p, ranks, false));
      }
      report_own(config, machine, ranks, memory, results);
    }
    if (arguments_.json.empty()) return;
    std::ofstream file(arguments_.json);
    file << Json{{"machine", machine.name}, {"config", arguments_.config}, {"layouts", results}}.dump(2) << "\n"
         << std::flush;
    if (!file) fail_usage("--json: cannot write {}", arguments_.json);
  }

  // The layout that the config itself asks for, when it suits that many ranks.
  void report_own(const Config& config, const MachineModel& machine, int ranks, const LayoutMemory& memory,
                  Json& results) {
    if (config.parallel.mode == ParallelMode::kScatter) return;
    Layout layout;
    try {
      layout = plan_layout(config, ranks);
    } catch (const Error&) {
      return;  // the table above stands without it
    }
    if (!config.parallel.partition.first_units.empty()) {
      const std::int64_t samples = layout.microbatch(config.train.global_batch_size);
      const auto infos = describe_model(config, *build_backend(config, device_), *data_, samples);
      cut_model(layout, config, infos, device_.memory_bytes);
    }
    try {
      Prediction own = predict(std::move(layout), config, machine, config.train.global_batch_size);
      set_memory(own, memory(own.layout, own.global_batch));
      print_row("  config:", own);
      results.push_back(prediction_json(own, ranks, true));
      if (!arguments_.trace.empty()) write_timeline(arguments_.trace, own);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kUsage) throw;
      std::cout << "  config:  " << error.what() << "\n";
    }
  }

  World& world_;
  const PlanArguments& arguments_;
  Config config_;
  DeviceChoice device_;
  std::unique_ptr<Communicator> all_;
  std::optional<StopRequest> stop_;
  CheckStop check_stop_ = [this](const std::string& doing) { stop_->check(doing); };
  std::unique_ptr<Dataset> data_;
};

}  // namespace

int plan_command(World& world, const PlanArguments& arguments) {
  Planner(world, arguments).run();
  return 0;
}

}  // namespace convoy
