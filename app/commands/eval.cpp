// SPDX-License-Identifier: Apache-2.0
//
// convoy eval: validation loss, top-1 and top-5 of a checkpoint, or of any HDF5 file with a /model group.
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "app/base/error_report.h"
#include "app/build/build_model.h"
#include "app/build/find_checkpoint.h"
#include "app/build/run_state.h"
#include "app/commands/commands.h"
#include "app/train/evaluate.h"
#include "app/train/progress.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

std::string number_line(const char* name, double value) {
  return std::isnan(value) ? fmt::format("{:<6} nan\n", name) : fmt::format("{:<6} {:.9g}\n", name, value);
}

}  // namespace

int eval_command(World& world, const EvalArguments& arguments) {
  const bool of_run = is_run_folder(arguments.config);
  const std::string path = of_run ? arguments.config + "/config.toml" : arguments.config;
  if (arguments.checkpoint.empty() && !of_run) {
    fail_usage(
        "eval: --checkpoint is missing (a file, newest, best, or a run's folder; a run's folder in place of the "
        "config has its newest)");
  }
  LoadedConfig loaded = load_config(world.ranks(), path, arguments.overrides);
  world.set_timeout(loaded.config.parallel.timeout);
  loaded.purpose = RunPurpose::kEvaluation;
  DataOptions& read = loaded.config.data;  // as validation is, should it evaluate on the training data
  read.augment.clear();
  read.train_sizes.clear();
  read.size_milestones.clear();
  const auto run = build_run(world, world.ranks(), std::move(loaded));
  const std::string run_of = of_run ? arguments.config : run_folder(run->config);
  const std::string checkpoints =
      of_run && run->config.checkpoint.dir.empty() ? run_of + "/checkpoints" : checkpoint_folder(run->config);
  const auto find = [&] {
    return find_checkpoint(arguments.checkpoint.empty() ? "newest" : arguments.checkpoint, run_of, checkpoints);
  };
  const std::string file = on_root(*run->communicator, find, "finding the checkpoint");
  load_model(*run, file);
  const bool held_out = run->validation != nullptr;
  const Dataset& data = held_out ? *run->validation : *run->train;
  std::unique_ptr<Progress> progress;
  if (run->is_root()) progress = std::make_unique<Progress>(run->config.log.progress, 0, 1);
  const bool shows = progress && progress->mode() == ProgressMode::kBar;  // lines would be among the results
  const auto after_batch = [&](std::int64_t done, std::int64_t batches) {
    if (shows) progress->evaluating(0, 0, done, batches);
    return true;
  };
  const EvalResult result = *evaluate(*run, data, after_batch);
  if (shows) progress->clear();
  if (!run->is_root()) return 0;
  if (!run->memory.warning.empty()) print_warning(run->memory.warning);
  for (const std::string& note : run->notes) std::cout << without_controls(note) << "\n";
  for (const std::string& warning : result.warnings) print_warning(warning);
  std::cout << fmt::format("{} on {} of {}\n", name_text(file), counted(result.samples, "sample"),
                           held_out ? "data.validation" : "data.train (no data.validation in the config)")
            << number_line("loss", result.loss);
  for (const auto& [name, value] : result.scores) {
    if (name == "top1") std::cout << fmt::format("top-1  {:.4f} %\n", 100 * value);
    if (name == "top5" && output_size(run->config, *run->train) > 5) {
      std::cout << fmt::format("top-5  {:.4f} %\n", 100 * value);
    }
    if (name == "accuracy") std::cout << fmt::format("accuracy  {:.4f} %\n", 100 * value);
    if (name == "exact_match") std::cout << fmt::format("exact match  {:.4f} %\n", 100 * value);
    if (name == "mae") std::cout << number_line("MAE", value);
    if (name == "rmse") std::cout << number_line("RMSE", value);
    if (name == "r2") std::cout << number_line("R2", value);
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace convoy
