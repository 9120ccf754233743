// SPDX-License-Identifier: Apache-2.0
//
// convoy train: build, resume, train; or, with --dry-run, say what would be trained.
#include <iostream>

#include "app/commands/commands.h"
#include "app/config_printer.h"
#include "app/trainer.h"

namespace convoy {

namespace {

void print_plan(Run& run, const RunState& state) {
  const Config& c = run.config;
  const ParameterStore& store = run.model->parameters();
  const auto parts = run.mesh.replicas() * static_cast<int>(c.parallel.microbatches);
  std::cout << fmt::format("model      {}: {} units, {} parameters, {} -> {}\n", to_string(c.model.name),
                           run.model->units().size(), store.parameter_count(), run.model->input_shape().str(),
                           run.model->output_shape().str())
            << fmt::format("device     {}\n", run.backend->description())
            << fmt::format("ranks      {} = {} replicas x {} stages\n", run.communicator->size(), run.mesh.replicas(),
                           run.mesh.stages())
            << fmt::format("batch      {} = {} parts of {}\n", c.train.global_batch_size, parts,
                           c.train.global_batch_size / parts)
            << fmt::format("data       {} samples, {} steps an epoch, {} steps in all\n", run.train->size(),
                           run.plan.steps_per_epoch(), run.total_steps)
            << fmt::format("run        {}\n", run_folder(c))
            << fmt::format("start      {}\n", state.source.empty()
                                                  ? "fresh"
                                                  : fmt::format("after step {}, from {}", state.step, state.source))
            << std::flush;
}

}  // namespace

int train_command(World& world, const TrainArguments& arguments) {
  const auto run = build_run(world, load_config(world, arguments.config, arguments.overrides));
  if (!arguments.dry_run) prepare_run_folder(*run);
  const RunState state = restore_run(*run);
  if (run->is_root()) print_plan(*run, state);
  if (arguments.dry_run) {
    if (run->is_root()) std::cout << "\n" << resolved_toml(run->config, true) << std::flush;
    return 0;
  }
  const TrainConfig& train = run->config.train;
  const bool finished = train.steps ? state.step >= *train.steps : state.epoch >= *train.epochs;
  if (finished && !state.source.empty()) {
    if (run->is_root()) {
      std::cout << fmt::format(
          "already finished: {} holds step {} (more epochs or steps, or --set checkpoint.resume=never "
          "to start anew)\n",
          state.source, state.step);
    }
    return 0;
  }
  Trainer trainer(*run, state);
  return static_cast<int>(trainer.train());
}

}  // namespace convoy
