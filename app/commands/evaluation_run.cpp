// SPDX-License-Identifier: Apache-2.0
#include "app/commands/evaluation_run.h"

#include <utility>

#include "app/build/find_checkpoint.h"
#include "app/build/run_state.h"
#include "app/commands/write_result.h"
#include "layers/base/error.h"
#include "parallel/comm/agree.h"

namespace convoy {

EvaluationRun evaluation_run(World& world, const std::string& command, const std::string& config,
                             const std::vector<std::string>& overrides, const std::string& checkpoint,
                             const std::function<void(LoadedConfig& loaded)>& change) {
  const bool of_run = is_run_folder(config);
  const std::string path = of_run ? config + "/config.toml" : config;
  if (checkpoint.empty() && !of_run) {
    fail_usage(
        "{}: --checkpoint is missing (a file, newest, best, or a run's folder; a run's folder in place of the "
        "config has its newest)",
        command);
  }
  LoadedConfig loaded = load_config(world.ranks(), path, overrides);
  world.set_timeout(loaded.config.parallel.timeout);
  loaded.purpose = RunPurpose::kEvaluation;
  DataOptions& read = loaded.config.data;  // as validation is, should it evaluate on the training data
  read.augment.clear();
  read.train_sizes.clear();
  read.size_milestones.clear();
  loaded.config.train.global_batch_size = batch_for(loaded.config, world.ranks().size());
  change(loaded);
  EvaluationRun result{build_run(world, world.ranks(), std::move(loaded)), "", {}};
  const Run& run = *result.run;
  const std::string run_of = of_run ? config : run_folder(run.config);
  const std::string checkpoints =
      of_run && run.config.checkpoint.dir.empty() ? run_of + "/checkpoints" : checkpoint_folder(run.config);
  const auto find = [&] { return find_checkpoint(checkpoint.empty() ? "newest" : checkpoint, run_of, checkpoints); };
  result.file = on_root(*run.communicator, find, "finding the checkpoint");
  load_model(*result.run, result.file);
  result.files = of_run ? files_of_run(config) : std::vector{config};
  result.files.push_back(result.file);
  return result;
}

}  // namespace convoy
