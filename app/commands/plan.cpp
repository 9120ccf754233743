// SPDX-License-Identifier: Apache-2.0
//
// convoy plan: which layout of so many ranks is predicted to be the fastest, from costs measured here (--calibrate,
// which keeps them in a file) or from stated figures of a machine (--machine), which can be fitted to measured rows
// (--fit).
#include <algorithm>
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
#include "app/commands/plan_output.h"
#include "app/planning/calibrate.h"
#include "app/planning/count_work.h"
#include "app/planning/machine_figures.h"
#include "app/planning/machine_fit.h"
#include "app/planning/predict.h"
#include "app/planning/stated_machine.h"
#include "app/planning/terms.h"
#include "app/planning/training_time.h"
#include "app/train/stop.h"
#include "layers/base/error.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;

class Planner {
 public:
  Planner(World& world, const PlanArguments& arguments) : world_(world), arguments_(arguments) {
    std::vector<std::string> overrides = arguments.overrides;
    if (!arguments.machine.empty()) overrides.emplace_back("device.kind=auto");  // this build may have no CUDA
    LoadedConfig loaded = load_config(world.ranks(), arguments.config, overrides);
    config_ = std::move(loaded.config);
    all_ = std::move(loaded.communicator);
    stop_.emplace(config_.run.stop_signals, std::nullopt);
    data_ = build_data(config_, config_.data.train, "", *all_, world.local_rank() == 0).train;
    agree(
        *all_, [&] { read_arguments(); }, "reading the arguments");
    if (figures_) {
      device_.gpu = 0;  // a stated machine has GPUs, whatever computes here
      return;
    }
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
  void read_arguments() {
    terms_ = parse_terms(arguments_.without, "--without");
    if (!arguments_.recipe.empty()) training_.recipe = &find_recipe(arguments_.recipe);
    if (!arguments_.machine.empty()) {
      figures_ = read_figures(find_example(arguments_.machine, ExampleKind::kMachine));
      config_ = gpu_config(config_, static_cast<int>(figures_->element_bytes));
    }
    if (!arguments_.fit.empty() && config_.parallel.mode == ParallelMode::kScatter) {
      fail_usage("--fit: parallel.mode = \"scatter\" is not predicted (choose another mode)");
    }
    if (!arguments_.fit.empty()) rows_ = read_measured_rows(arguments_.fit);
    plan_training();
  }

  // What is trained, if it is known for how many epochs.
  void plan_training() {
    if (arguments_.epochs > 0) {
      training_.epochs = static_cast<double>(arguments_.epochs);
    } else if (config_.train.epochs && training_.recipe == nullptr) {
      training_.epochs = static_cast<double>(*config_.train.epochs);
    }
    timed_ = training_.epochs || training_.recipe != nullptr;
    if (!timed_) return;
    training_.samples = static_cast<double>(data_->size());
    training_.eval_every_epochs = config_.train.eval_every_epochs;
    if (training_.recipe != nullptr) {
      for (const int ranks : arguments_.ranks) static_cast<void>(recipe_epochs(*training_.recipe, global_batch(ranks)));
      training_.samples = training_.recipe->samples;
      training_.evaluation_samples = training_.recipe->evaluation_samples;
      training_.eval_every_epochs = training_.recipe->eval_every_epochs;
    } else if (world_.rank() == 0 && !config_.data.validation.empty()) {  // which alone reports
      const auto validation = build_dataset(config_, config_.data.validation, "data.validation");
      training_.evaluation_samples = static_cast<double>(validation->size());
    }
    training_.checkpoint_epochs = config_.checkpoint.every_epochs;
    training_.checkpoint_steps = config_.checkpoint.every_steps;
  }

  [[nodiscard]] std::int64_t global_batch(int ranks) const {
    return arguments_.samples_per_rank > 0 ? arguments_.samples_per_rank * ranks : config_.train.global_batch_size;
  }

  MachineModel machine_model() {
    const std::string file = arguments_.costs.empty() ? run_folder(config_) + "/costs.json" : arguments_.costs;
    MachineModel machine;
    if (arguments_.calibrate) {
      machine = calibrate(without_recomputation(), *data_, device_, world_.ranks(), *all_, check_stop_);
      const auto keep = [&] {
        if (world_.rank() != 0) return;
        const std::filesystem::path folder = std::filesystem::path(file).parent_path();
        std::error_code ignored;
        if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
        write_machine(file, machine);
      };
      agree(*all_, keep, "writing the costs");
      if (world_.rank() == 0) std::cout << "measured costs are in " << file << "\n";
      return reduced(std::move(machine));
    }
    const auto get = [&] {
      if (world_.rank() == 0) machine = figures_ ? machine_of_figures() : read_machine(file);
    };
    agree(*all_, get, "reading the costs");
    return reduced(std::move(machine));
  }

  // Costs are those of plain units: predict() adds the forward that runs again.
  [[nodiscard]] Config without_recomputation() const {
    Config config = config_;
    config.model.recompute = {};
    return config;
  }

  // Fitted first, if that is asked for.
  MachineModel machine_of_figures() {
    const auto work = std::make_shared<const ModelWork>(count_work(without_recomputation(), *data_));
    MachineFigures figures = *figures_;
    std::string kind = "stated";
    if (!rows_.empty()) {
      fit_ = fit_machine(figures, rows_, layout_predictor(config_, work, terms_, arguments_.fit));
      figures = fit_->figures;
      kind = "fitted";
      std::cout << fit_report(*fit_);
      if (!arguments_.write_machine.empty()) {
        const std::string comment =
            fmt::format("{}, fitted to {} measured rows by convoy plan.", figures.name, rows_.size());
        write_figures(arguments_.write_machine, figures, comment);
      }
    }
    MachineModel machine = stated_machine(figures, work);
    machine.name = kind + ": " + machine.name;
    return machine;
  }

  MachineModel reduced(MachineModel machine) const {
    for (const Term term : terms_) machine = without(std::move(machine), term);
    return machine;
  }

  void report(const MachineModel& machine) {
    Json results = Json::array();
    if (!arguments_.ranks.empty())
      std::cout << machine.name << "\n" << layout_head(timed_, figures_ || device_.on_gpu());
    const auto after_layout = [this] { check_stop_("planning"); };
    for (const int ranks : arguments_.ranks) {
      const std::int64_t batch = global_batch(ranks);
      Config config = config_;
      config.train.global_batch_size = batch;
      const LayoutMemory memory = rehearsed_memory(config, *data_, device_, process_memory().resident);
      bool first = true;
      for (const Prediction& p : best_layouts(config, machine, ranks, batch, arguments_.top, memory, after_layout)) {
        const PlannedLayout planned = complete(p, config, machine, false);
        std::cout << layout_row(std::to_string(ranks), planned) << (first ? parts_row(planned) : "") << std::flush;
        results.push_back(layout_json(planned));
        first = false;
      }
      report_own(config, machine, ranks, memory, results);
    }
    if (arguments_.json.empty()) return;
    Json json{{"machine", machine.name}, {"config", arguments_.config}, {"layouts", results}};
    if (fit_) json["fit"] = fit_json(*fit_);
    std::ofstream file(arguments_.json);
    file << json.dump(2) << "\n" << std::flush;
    if (!file) fail_usage("--json: cannot write {}", arguments_.json);
  }

  [[nodiscard]] PlannedLayout complete(const Prediction& p, const Config& config, const MachineModel& machine,
                                       bool own) const {
    PlannedLayout planned{p, own, step_parts(p, config, machine), std::nullopt, std::nullopt};
    if (fit_) {
      for (const MachineFigures& figures : fit_->left_out) {
        const MachineModel other = reduced(stated_machine(figures, machine.work));
        const double speed = predict(p.layout, config, other, p.global_batch).images_per_second();
        if (!planned.range) planned.range = {speed, speed};
        planned.range = {std::min(planned.range->first, speed), std::max(planned.range->second, speed)};
      }
    }
    if (timed_) {
      TrainingPlan training = training_;
      for (const UnitCost& cost : p.layout.costs) training.state_bytes += (1 + config.slots()) * cost.parameter_bytes;
      planned.time = training_time(p, machine, training);
    }
    return planned;
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
      const auto infos = describe_model(config, *rehearsal_backend(config, device_), *data_, samples);
      cut_model(layout, config, infos, device_.memory_bytes);
    }
    try {
      Prediction own = predict(std::move(layout), config, machine, config.train.global_batch_size);
      set_memory(own, memory(own.layout, own.global_batch));
      const PlannedLayout planned = complete(own, config, machine, true);
      std::cout << layout_row("  config:", planned) << std::flush;
      results.push_back(layout_json(planned));
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
  std::vector<Term> terms_;                // left out
  std::optional<MachineFigures> figures_;  // of --machine
  std::vector<MeasuredRow> rows_;          // of --fit
  std::optional<MachineFit> fit_;
  TrainingPlan training_;
  bool timed_ = false;
};

}  // namespace

int plan_command(World& world, const PlanArguments& arguments) {
  Planner(world, arguments).run();
  return 0;
}

}  // namespace convoy
