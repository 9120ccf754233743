// SPDX-License-Identifier: Apache-2.0
//
// convoy train: build, resume, train; or, with --dry-run, say what would be trained.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/base/error_report.h"
#include "app/commands/commands.h"
#include "app/config/config_printer.h"
#include "app/train/run_lock.h"
#include "app/train/trainer.h"
#include "layers/base/counted.h"
#include "layers/base/message_text.h"

namespace convoy {

namespace {

std::string describe_schedule(const Config& c, const Schedule& schedule) {
  switch (c.parallel.mode) {
    case ParallelMode::kData: return "data parallel";
    case ParallelMode::kScatter: return "scattered from rank 0";
    case ParallelMode::kModel: return "model parallel, " + counted(schedule.stages, "stage");
    case ParallelMode::kPipeline: break;
  }
  return fmt::format("pipeline, {}, {}, {}", counted(schedule.stages, "stage"), schedule.name,
                     counted(schedule.microbatches, "microbatch"));
}

// Which weights were loaded, and which parts learn; nothing for a model that learns as a whole from random weights.
void print_learning(const Run& run) {
  if (!run.loaded_weights.empty()) std::cout << fmt::format("weights    {}\n", name_text(run.loaded_weights));
  std::vector<std::string> frozen;
  std::int64_t learned = 0, all = 0;
  for (const UnitInfo& unit : run.model->units()) {
    all += unit.parameters();
    if (unit.frozen) {
      frozen.push_back(unit.name);
    } else {
      learned += unit.parameters();
    }
  }
  if (frozen.empty()) return;
  std::cout << fmt::format("frozen     {} ({} of {}); {} of {} learn\n", fmt::join(frozen, ", "), frozen.size(),
                           counted(run.model->units().size(), "unit"), learned, counted(all, "parameter"));
}

void print_plan(Run& run, const RunState& state) {
  const Config& c = run.config;
  const Mesh& mesh = run.layout.mesh;
  const auto parts = mesh.replicas() * run.layout.schedule.microbatches;
  std::cout << fmt::format("model      {}: {}, {}, {} -> {}\n", c.model.name,
                           counted(run.model->units().size(), "unit"),
                           counted(run.model->parameter_count(), "parameter"), run.model->input_shape().str(),
                           run.model->output_shape().str())
            << fmt::format("device     {}{}\n", run.backend->description(),
                           run.device.no_gpu.empty() ? "" : fmt::format(" (no GPU: {})", run.device.no_gpu))
            << fmt::format("cpus       {}\n", run.cpus)
            << fmt::format("ranks      {} = {} x {}\n", mesh.ranks(), counted(mesh.replicas(), "replica"),
                           counted(mesh.stages(), "stage"))
            << fmt::format("mode       {}\n", describe_schedule(c, run.layout.schedule));
  if (mesh.stages() > 1) {
    const std::vector<std::string> stages = describe_stages(run.layout, run.model->units());
    for (std::size_t i = 0; i < stages.size(); ++i) std::cout << fmt::format("stage {:<4} {}\n", i, stages[i]);
  }
  print_learning(run);
  std::cout << fmt::format("batch      {} = {} of {}\n", c.train.global_batch_size, counted(parts, "part"),
                           c.train.global_batch_size / parts)
            << fmt::format("data       {}, {} an epoch, {} in all\n", counted(run.train->size(), "sample"),
                           counted(run.plan.steps_per_epoch(), "step"), counted(run.total_steps, "step"))
            << fmt::format("memory     {}\n", run.memory.line)
            << fmt::format("run        {}\n", name_text(run_folder(c)))
            << fmt::format("start      {}\n", state.describe_start()) << std::flush;
}

}  // namespace

int train_command(World& world, const TrainArguments& arguments) {
  LoadedConfig loaded = load_config(world.ranks(), arguments.config, arguments.overrides);
  world.set_timeout(loaded.config.parallel.timeout);
  loaded.stage_data = !arguments.dry_run;
  std::optional<StopRequest> stop;  // from here on: a signal while the run is being built is none to die of
  if (!arguments.dry_run) {
    stop.emplace(loaded.config.run.stop_signals, loaded.config.run.max_time);
    loaded.check_stop = [&stop](const std::string& doing) { stop->check(doing); };
  }
  const auto run = build_run(world, world.ranks(), std::move(loaded));
  check_evaluation_keys(*run);
  const RunLocks locks = arguments.dry_run ? RunLocks() : lock_run_folders(*run);
  const RunState state = restore_run(*run, arguments.dry_run ? "" : run_folder(run->config) + "/log.txt");
  if (run->is_root()) print_plan(*run, state);
  if (run->is_root() && !run->memory.warning.empty()) print_warning(run->memory.warning);
  if (arguments.dry_run) {
    if (run->is_root()) std::cout << "\n" << resolved_toml(run->config, true) << std::flush;
    return 0;
  }
  if (is_finished(run->config, state) && !state.evaluation_due && !state.source.empty()) {
    if (run->is_root()) {
      std::cout << fmt::format(
          "already finished: {} holds step {} ({}; to start over, delete {} or choose another run.name)\n",
          state.source, state.step,
          is_trained(run->config, state) ? "train more epochs or steps"
                                         : "train.early_stop_epochs has ended it; set it higher, or to 0",
          run_folder(run->config));
    }
    return 0;
  }
  Trainer trainer(*run, state, *stop);
  return static_cast<int>(trainer.train());
}

}  // namespace convoy
