// SPDX-License-Identifier: Apache-2.0
#include "app/run_state.h"

#include <chrono>
#include <iostream>

#include "app/config_printer.h"
#include "app/version.h"
#include "layers/base/error.h"
#include "parallel/agree.h"

namespace convoy {

namespace {

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm tm{};
  gmtime_r(&now, &tm);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &tm);
  return text.data();
}

void import_checkpoint(Run& run, const Checkpoint& checkpoint, const std::string& file) {
  if (checkpoint.seed != run.config.run.seed) {
    fail_usage(
        "{}: was written with run.seed = {}, this run has {} (use the same seed, or checkpoint.resume = "
        "\"never\")",
        file, checkpoint.seed, run.config.run.seed);
  }
  ParameterStore& store = run.model->parameters();
  store.import_model(checkpoint.model, file);
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
    store.import_slot(found->second, flat, fmt::format("{}:/optimizer/{}", file, name));
  }
  if (checkpoint.optimizer.size() != slots.size()) {
    fail_usage("{}: holds state of another optimizer than optimizer.name = {} (use the one it was written with)", file,
               to_string(run.config.optimizer.name));
  }
}

std::string file_to_resume(const Run& run) {
  const CheckpointConfig& c = run.config.checkpoint;
  if (c.resume == "never") return "";
  if (c.resume != "auto") return c.resume;
  const auto found = find_newest_checkpoint(checkpoint_folder(run.config), [](const std::string& warning) {
    std::cerr << "convoy: warning: " << warning << std::endl;
  });
  return found ? found->string() : "";
}

}  // namespace

Checkpoint capture_checkpoint(Run& run, const RunState& state) {
  Checkpoint checkpoint;
  const ParameterStore& store = run.model->parameters();
  checkpoint.model = store.export_model();
  for (const auto& [name, flat] : run.optimizer->slots())
    checkpoint.optimizer.emplace_back(name, store.export_slot(flat));
  checkpoint.step = state.step;
  checkpoint.epoch = state.epoch;
  checkpoint.samples_seen = state.samples_seen;
  checkpoint.lr_step = state.step;
  checkpoint.seed = run.config.run.seed;
  checkpoint.loss_scale = 1;
  checkpoint.config = resolved_toml(run.config, false);
  checkpoint.program_version = program_version();
  checkpoint.mode = to_string(run.config.parallel.mode);
  checkpoint.created = utc_now();
  checkpoint.ranks = run.communicator->size();
  return checkpoint;
}

RunState restore_run(Run& run) {
  RunState state;
  const auto load = [&]() -> std::string {
    const std::string file = file_to_resume(run);
    if (file.empty()) return "";
    const Checkpoint checkpoint = read_checkpoint(file);
    import_checkpoint(run, checkpoint, file);
    return fmt::format("{} {} {} {}", checkpoint.step, checkpoint.epoch, checkpoint.samples_seen, file);
  };
  const std::string found = on_root(*run.communicator, load, "resuming from a checkpoint");
  if (found.empty()) return state;
  std::istringstream text(found);
  text >> state.step >> state.epoch >> state.samples_seen >> std::ws;
  std::getline(text, state.source);
  broadcast_state(run);
  return state;
}

void load_model(Run& run, const std::string& file) {
  const auto load = [&]() -> std::string {
    run.model->parameters().import_model(read_model_weights(file), file);
    return "";
  };
  on_root(*run.communicator, load, "loading the checkpoint");
  broadcast_state(run);
}

}  // namespace convoy
