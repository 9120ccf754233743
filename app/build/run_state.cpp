// SPDX-License-Identifier: Apache-2.0
#include "app/build/run_state.h"

#include <chrono>
#include <iostream>

#include "app/base/version.h"
#include "app/build/pipeline_state.h"
#include "app/config/config_printer.h"
#include "layers/base/clock.h"
#include "layers/base/error.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

// Throws a usage Error unless the checkpoint is one of this model and this optimizer.
void check_checkpoint(const Run& run, const Checkpoint& checkpoint, const std::string& file) {
  if (checkpoint.seed != run.config.run.seed) {
    fail_usage(
        "{}: was written with run.seed = {}, this run has {} (use the same seed, or checkpoint.resume = "
        "\"never\")",
        file, checkpoint.seed, run.config.run.seed);
  }
  const std::vector<TensorEntry> manifest = run.model->manifest();
  static_cast<void>(match_manifest(manifest, checkpoint.model, file));
  const auto& slots = run.optimizer->slots();
  for (const auto& [name, flat] : slots) {
    const auto found = std::find_if(checkpoint.optimizer.begin(), checkpoint.optimizer.end(),
                                    [&, &slot = name](const auto& entry) { return entry.first == slot; });
    if (found == checkpoint.optimizer.end()) {
      fail_usage(
          "{}: has no optimizer state \"{}\": it was written with another optimizer.name (use that one, or start "
          "anew from its weights with model.weights and checkpoint.resume = \"never\")",
          file, name);
    }
    static_cast<void>(
        match_manifest(only_parameters(manifest), found->second, fmt::format("{}:/optimizer/{}", file, name)));
  }
  if (checkpoint.optimizer.size() != slots.size()) {
    fail_usage("{}: holds state of another optimizer than optimizer.name = {} (use the one it was written with)", file,
               run.config.optimizer.name());
  }
}

std::string file_to_resume(const Run& run) {
  const CheckpointOptions& c = run.config.checkpoint;
  if (c.resume == "never") return "";
  if (c.resume != "auto") return c.resume;
  const auto found = find_newest_checkpoint(checkpoint_folder(run.config), [](const std::string& warning) {
    std::cerr << "convoy: warning: " << warning << std::endl;
  });
  return found ? found->string() : "";
}

/// The name of the last layer's parameters ("fc."), which model.reset_head leaves fresh.
std::string head_prefix(const Model& model) {
  const std::string name = only_parameters(model.manifest()).back().name;
  return name.substr(0, name.rfind('.') + 1);
}

void load_weights(Run& run, const std::string& file, const std::string& skip) {
  StateTensors tensors;
  const auto load = [&]() -> std::string {
    tensors.model = read_model_weights(file);
    static_cast<void>(match_manifest(run.model->manifest(), tensors.model, file, skip));
    return "";
  };
  on_root(*run.communicator, load, "loading weights");
  scatter_state(run, tensors, file, skip);
}

}  // namespace

bool is_finished(const Config& config, const RunState& state) {
  return config.train.steps ? state.step >= *config.train.steps : state.epoch >= *config.train.epochs;
}

Checkpoint capture_checkpoint(Run& run, const RunState& state, Checkpoint reuse) {
  Checkpoint checkpoint;
  StateTensors tensors = gather_state(run, {std::move(reuse.model), std::move(reuse.optimizer)});
  checkpoint.model = std::move(tensors.model);
  checkpoint.optimizer = std::move(tensors.optimizer);
  checkpoint.step = state.step;
  checkpoint.epoch = state.epoch;
  checkpoint.samples_seen = state.samples_seen;
  checkpoint.lr_step = state.step;
  checkpoint.seed = run.config.run.seed;
  checkpoint.loss_scale = run.loss_scaler.scale();
  checkpoint.config = resolved_toml(run.config, false);
  checkpoint.program_version = program_version();
  checkpoint.mode = to_string(run.config.parallel.mode);
  checkpoint.created = utc_time();
  checkpoint.ranks = run.communicator->size();
  return checkpoint;
}

RunState restore_run(Run& run) {
  RunState state;
  StateTensors tensors;
  const auto load = [&]() -> std::string {
    const std::string file = file_to_resume(run);
    if (file.empty()) return "";
    Checkpoint checkpoint = read_checkpoint(file);
    check_checkpoint(run, checkpoint, file);
    tensors = {std::move(checkpoint.model), std::move(checkpoint.optimizer)};
    return fmt::format("{} {} {} {} {}", checkpoint.step, checkpoint.epoch, checkpoint.samples_seen,
                       checkpoint.loss_scale, file);
  };
  const std::string found = on_root(*run.communicator, load, "resuming from a checkpoint");
  if (found.empty()) return state;
  std::istringstream text(found);
  double loss_scale = 1;
  text >> state.step >> state.epoch >> state.samples_seen >> loss_scale >> std::ws;
  run.loss_scaler.restore(loss_scale);
  std::getline(text, state.source);
  scatter_state(run, tensors, state.source);
  return state;
}

void load_model(Run& run, const std::string& file) { load_weights(run, file, ""); }

void load_start_weights(Run& run) {
  const ModelOptions& model = run.config.model;
  if (!model.weights.empty()) load_weights(run, model.weights, model.reset_head ? head_prefix(*run.model) : "");
}

}  // namespace convoy
