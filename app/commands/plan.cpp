// SPDX-License-Identifier: Apache-2.0
//
// convoy plan: which layout of so many ranks is predicted to be the fastest, from costs measured here (--calibrate,
// which keeps them in a file) or from stated figures of a machine (--machine), which can be fitted to measured rows
// (--fit).
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
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
#include "app/commands/write_result.h"
#include "app/planning/calibrate.h"
#include "app/planning/count_work.h"
#include "app/planning/machine_figures.h"
#include "app/planning/machine_fit.h"
#include "app/planning/predict.h"
#include "app/planning/stated_machine.h"
#include "app/planning/terms.h"
#include "app/planning/training_time.h"
#include "app/train/stop.h"
#include "io/files/create_folders.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"
#include "layers/base/system_error.h"
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
    if (world_.rank() == 0) check_outputs();
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

  void check_outputs() const {  // before anything is measured
    check_result_path("--json", arguments_.json);
    check_result_path("--trace", arguments_.trace);
    check_result_path("--write-machine", arguments_.write_machine);
    if (arguments_.calibrate) check_result_path("--costs", arguments_.costs);
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
        if (arguments_.costs.empty()) make_run_folder();
        const std::string text = machine_json(machine);
        write_result("--costs", file, std::as_bytes(std::span(text)));
      };
      agree(*all_, keep, "writing the costs");
      if (world_.rank() == 0) std::cout << "measured costs are in " << file << "\n";
      return reduced(std::move(machine));
    }
    const auto get = [&] {
      if (world_.rank() != 0) return;
      machine = figures_ ? machine_of_figures() : read_machine(file, measured_model(config_, *data_, device_));
    };
    agree(*all_, get, "reading the costs");
    return reduced(std::move(machine));
  }

  void make_run_folder() const {
    const std::string folder = run_folder(config_);
    const std::error_code error = create_folders(folder);
    if (error) fail_system(error.value(), "cannot create the run folder {}: {}", folder, error.message());
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
            fmt::format("{}, fitted to {} measured rows by convoy plan.", name_text(figures.name), rows_.size());
        const std::string text = figures_toml(figures, comment);
        write_result("--write-machine", arguments_.write_machine, std::as_bytes(std::span(text)));
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
      std::cout << name_text(machine.name) << "\n" << layout_head(timed_, figures_ || device_.on_gpu());
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
    if (!arguments_.json.empty()) {
      Json json{{"machine", machine.name}, {"config", arguments_.config}, {"layouts", results}};
      if (fit_) json["fit"] = fit_json(*fit_);
      const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
      write_result("--json", arguments_.json, std::as_bytes(std::span(text)));
    }
    if (arguments_.trace.empty()) return;
    if (own_.empty()) fail_usage("--trace: the config's own layout suits none of --ranks: {}", own_problem_);
    write_timelines("--trace", arguments_.trace, own_);
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

  // The layout that the config itself asks for, or why it does not suit that many ranks.
  void report_own(const Config& config, const MachineModel& machine, int ranks, const LayoutMemory& memory,
                  Json& results) {
    try {
      Prediction own = own_layout(config, machine, ranks);
      set_memory(own, memory(own.layout, own.global_batch));
      const PlannedLayout planned = complete(own, config, machine, true);
      std::cout << layout_row("  config:", planned) << std::flush;
      results.push_back(layout_json(planned));
      if (!arguments_.trace.empty()) own_.push_back(std::move(own));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kUsage) throw;
      own_problem_ = error.what();
      std::cout << "  config:  " << name_text(own_problem_) << "\n";
    }
  }

  // Throws a usage Error when it does not suit that many ranks.
  [[nodiscard]] Prediction own_layout(const Config& config, const MachineModel& machine, int ranks) const {
    if (config.parallel.mode == ParallelMode::kScatter) {
      fail_usage("parallel.mode = \"scatter\" is not predicted (choose another mode)");
    }
    Layout layout = plan_layout(config, ranks);
    if (!config.parallel.partition.first_units.empty()) {
      const std::int64_t samples = layout.microbatch(config.train.global_batch_size);
      const auto infos = describe_model(config, *rehearsal_backend(config, device_), *data_, samples);
      cut_model(layout, config, infos, device_.memory_bytes);
    }
    return predict(std::move(layout), config, machine, config.train.global_batch_size);
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
  std::vector<Prediction> own_;  // of the config's own layout, for --trace
  std::string own_problem_;      // why there was none, the last time
};

}  // namespace

int plan_command(World& world, const PlanArguments& arguments) {
  Planner(world, arguments).run();
  return 0;
}

}  // namespace convoy
