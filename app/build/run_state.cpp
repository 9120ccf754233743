// SPDX-License-Identifier: Apache-2.0
#include "app/build/run_state.h"

#include <algorithm>
#include <istream>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "app/base/error_report.h"
#include "app/base/version.h"
#include "app/build/data_fingerprint.h"
#include "app/build/find_checkpoint.h"
#include "app/build/head_state.h"
#include "app/build/pipeline_state.h"
#include "app/build/read_config.h"
#include "app/build/resume_choice.h"
#include "app/config/config_changes.h"
#include "app/config/config_printer.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/log/run_log.h"
#include "layers/base/clock.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

constexpr const char* kOtherFolder = "give this run a folder of its own with --set run.name=...";

// Keys of [model] that may change from one start to the next.
bool may_change(const std::string& key) {
  return key == "model.weights" || key == "model.reset_head" || key == "model.recompute" ||
         key.starts_with("model.freeze");
}

std::string listed(const std::vector<ConfigChange>& changes, bool (*wanted)(const std::string& key)) {
  std::string text;
  for (const ConfigChange& change : changes) {
    if (wanted(change.key)) text += (text.empty() ? "" : ", ") + change.str();
  }
  return text;
}

// Throws a usage Error, in one line, unless the tensors of the file are those of this model, whose config differs in
// `changes`. The list of what does not fit goes to `log`, unless that is empty.
void check_tensors(const Run& run, const Checkpoint& checkpoint, const std::string& file, const std::string& changes,
                   bool named, const std::string& log) {
  std::string list;
  try {
    static_cast<void>(match_manifest(run.model->manifest(), checkpoint.model, file));
    if (changes.empty() || named) return;
  } catch (const Error& error) {
    if (!log.empty()) {
      RunLog(log).warn(error.what());
      list = "; log.txt lists the tensors";
    }
  }
  fail_usage("{}: holds another model: {}{} ({}, or delete {} to start over)", file,
             changes.empty() ? "its tensors are not those of this one" : changes, list, kOtherFolder,
             run_folder(run.config));
}

void check_optimizer_state(const Run& run, const Checkpoint& checkpoint, const std::string& file) {
  const auto& slots = run.optimizer->slots();
  for (const auto& [name, flat] : slots) {
    const auto found = std::find_if(checkpoint.optimizer.begin(), checkpoint.optimizer.end(),
                                    [&, &slot = name](const auto& entry) { return entry.first == slot; });
    if (found == checkpoint.optimizer.end()) {
      fail_usage(
          "{}: has no optimizer state \"{}\": it was written with another optimizer.name (use that one, or start a run "
          "of another run.name from its weights with model.weights)",
          file, name);
    }
    static_cast<void>(match_manifest(only_parameters(run.model->manifest()), found->second,
                                     fmt::format("{}:/optimizer/{}", file, name)));
  }
  if (checkpoint.optimizer.size() != slots.size()) {
    fail_usage("{}: holds state of another optimizer than optimizer.name = {} (use the one it was written with)", file,
               run.config.optimizer.name());
  }
}

// Throws a usage Error unless it is an average of this model. Those of earlier versions have no running statistics.
void check_average(const Run& run, const std::vector<HostTensor>& average, const std::string& file) {
  const std::vector<TensorEntry> all = averaged(run.model->manifest()), parameters = only_parameters(all);
  static_cast<void>(match_manifest(average.size() == parameters.size() ? parameters : all, average, file + ":/ema"));
}

// Throws a usage Error unless the checkpoint is one of this run: its model and optimizer, and, unless the user names
// the file (`named`), its data and loss.
void check_checkpoint(const Run& run, const Checkpoint& checkpoint, const std::string& file,
                      const std::vector<ConfigChange>& changes, bool named, const std::string& log) {
  if (checkpoint.seed != run.config.run.seed) {
    fail_usage("{}: was written with run.seed = {}, this run has {} (use the same seed, or {})", file, checkpoint.seed,
               run.config.run.seed, kOtherFolder);
  }
  const std::string remedy =
      fmt::format("{}, or resume all the same with --set checkpoint.resume={}", kOtherFolder, file);
  const std::string model =
      listed(changes, [](const std::string& key) { return key.starts_with("model.") && !may_change(key); });
  if (!named && model.empty() && !checkpoint.data.empty() && checkpoint.data != run.data_fingerprint) {
    fail_usage("{}: was written with other training data: {}; data.train has {} ({})", file, checkpoint.data,
               run.data_fingerprint, remedy);
  }
  check_tensors(run, checkpoint, file, model, named, log);
  const std::string loss = listed(changes, [](const std::string& key) { return key == "train.loss"; });
  if (!named && !loss.empty()) fail_usage("{}: was written with another loss: {} ({})", file, loss, remedy);
  check_optimizer_state(run, checkpoint, file);
  if (run.average && !checkpoint.average.empty()) check_average(run, checkpoint.average, file);
}

// The average that the checkpoint has; for what it lacks, the model.
std::vector<HostTensor> take_average(Run& run, Checkpoint& checkpoint, const std::string& file) {
  if (checkpoint.average.empty()) {
    run.notes.push_back(
        fmt::format("train.ema_decay: {} holds no average of the weights, which starts from its weights", file));
  }
  std::vector<HostTensor> average = std::move(checkpoint.average);
  std::set<std::string> there, wanted;
  for (const HostTensor& tensor : average) there.insert(tensor.name);
  for (const TensorEntry& entry : averaged(run.model->manifest())) wanted.insert(entry.name);
  for (const HostTensor& tensor : checkpoint.model) {
    if (wanted.contains(tensor.name) && !there.contains(tensor.name)) average.push_back(tensor);
  }
  return average;
}

/// The name of the last layer's parameters ("fc."), which model.reset_head leaves fresh.
std::string head_prefix(const Model& model) {
  const std::string name = only_parameters(model.manifest()).back().name;
  return name.substr(0, name.rfind('.') + 1);
}

[[noreturn]] void refuse_nonfinite(const std::string& file, const std::string& name) {
  fail_usage("{}: {} has values that are not finite (take weights of an earlier step)", file, name);
}

// Throws a usage Error, with a hint if the head alone is the problem.
void check_weights(const Run& run, const std::vector<HostTensor>& weights, const std::string& file,
                   const std::string& skip) {
  const std::vector<TensorEntry> manifest = run.model->manifest();
  try {
    static_cast<void>(match_manifest(manifest, weights, file, skip));
  } catch (const Error& error) {
    const std::string head = head_prefix(*run.model);
    bool only_head = skip.empty();
    try {
      static_cast<void>(match_manifest(manifest, weights, file, head));
    } catch (const Error&) {
      only_head = false;
    }
    if (!only_head) throw;
    fail_usage("{}; all but the last layer fits: initialise that one at random with model.reset_head = true",
               error.what());
  }
  if (const std::string name = first_nonfinite(weights); !name.empty()) refuse_nonfinite(file, name);
}

// Of a file that has been read without them.
std::unique_ptr<TensorRows> open_rows(const std::string& file) {
  return hdf5::input_errors([&] { return std::make_unique<TensorRows>(file); });
}

void load_weights(Run& run, const std::string& file, const std::string& skip) {
  StateTensors tensors;
  std::unique_ptr<TensorRows> rows;
  const bool with_head = run.head && skip.empty();
  const auto load = [&]() -> std::string {
    tensors.model = read_model_weights(file, sharded_names(run));
    check_weights(run, tensors.model, file, skip);
    if (with_head) rows = open_rows(file);
    if (const std::string name = with_head ? first_nonfinite_of_head(run, *rows) : ""; !name.empty()) {
      refuse_nonfinite(file, name);
    }
    return "";
  };
  on_root(*run.communicator, load, "loading weights");
  scatter_state(run, tensors, file, skip);
  if (with_head) scatter_head(run, {{"/model", run.model->parameters().values()}}, rows.get());
  if (run.average) run.average->restart();
  run.loaded_weights = fmt::format("{} from {}", counted(tensors.model.size(), "tensor"), file);
  if (!skip.empty()) run.loaded_weights += fmt::format("; {}* is initialised at random", skip);
}

}  // namespace

std::string RunState::describe_start() const {
  if (source.empty()) return "fresh";
  return fmt::format("after step {}, from {}{}", step, source, reason.empty() ? "" : fmt::format(" ({})", reason));
}

bool is_trained(const Config& config, const RunState& state) {
  return config.train.steps ? state.step >= *config.train.steps : state.epoch >= *config.train.epochs;
}

bool is_finished(const Config& config, const RunState& state) { return state.early_stop || is_trained(config, state); }

namespace {

// A sharded head's parts of a checkpoint. With an average, but none in the file, that begins with the weights.
std::vector<HeadPart> head_parts(const Run& run, bool average_in_file = true) {
  std::vector<HeadPart> parts{{"/model", run.model->parameters().values()}};
  for (const auto& [name, flat] : slots_of(run)) {
    const bool is_average = name == kAverageSlot;
    parts.push_back({!is_average ? "/optimizer/" + name : average_in_file ? "/ema" : "/model", flat});
  }
  return parts;
}

}  // namespace

Checkpoint capture_checkpoint(Run& run, const RunState& state, Checkpoint reuse) {
  Checkpoint checkpoint;
  run.runner->share_state();
  if (run.average) reuse.optimizer.emplace_back(kAverageSlot, std::move(reuse.average));
  StateTensors tensors = gather_state(run, {std::move(reuse.model), std::move(reuse.optimizer)});
  if (run.average && !tensors.optimizer.empty()) {
    checkpoint.average = std::move(tensors.optimizer.back().second);
    tensors.optimizer.pop_back();
  }
  checkpoint.model = std::move(tensors.model);
  checkpoint.optimizer = std::move(tensors.optimizer);
  if (run.head) {
    const auto spool = run.is_root()
                           ? std::make_shared<TensorSpool>(checkpoint_path(checkpoint_folder(run.config), state.step))
                           : nullptr;
    gather_head(run, head_parts(run), spool.get());
    checkpoint.spool = spool;
  }
  checkpoint.step = state.step;
  checkpoint.epoch = state.epoch;
  checkpoint.samples_seen = state.samples_seen;
  checkpoint.lr_step = state.step;
  checkpoint.seed = run.config.run.seed;
  checkpoint.loss_scale = run.loss_scaler.scale();
  checkpoint.evaluation_due = state.evaluation_due;
  checkpoint.config = resolved_toml(run.config, false);
  checkpoint.data = run.data_fingerprint;
  checkpoint.program_version = program_version();
  checkpoint.mode = to_string(run.config.parallel.mode);
  checkpoint.created = utc_time();
  checkpoint.ranks = run.communicator->size();
  checkpoint.run = state.record.id;
  return checkpoint;
}

namespace {

// The steps of an epoch may have changed in number, with the batch.
void follow_epochs(Run& run, RunState& state) {
  if (state.samples_seen > 0 && run.plan.batch_at(state.samples_seen).count == 0) {  // none is left of this size
    ++state.epoch;
    state.samples_seen = 0;
    state.evaluation_due = evaluates_now(run, state, true);
  }
  if (!run.config.train.epochs) return;
  BatchPlan left = run.plan;
  left.size -= state.samples_seen;
  const std::int64_t of_all = (state.epoch + 1) * run.plan.steps_per_epoch();  // of the epochs done and this one
  run.steps_ahead = of_all - left.steps_per_epoch() - state.step;
  run.total_steps -= run.steps_ahead;
}

}  // namespace

bool evaluates_now(const Run& run, const RunState& state, bool end_of_epoch) {
  if (!run.validation) return false;
  const std::int64_t every = run.config.train.eval_every_epochs;
  return every > 0 ? end_of_epoch && state.epoch % every == 0 : is_finished(run.config, state);
}

RunState restore_run(Run& run, const std::string& log) {
  RunState state;
  StateTensors tensors;
  bool average_in_file = true;
  std::unique_ptr<TensorRows> rows;  // of a sharded head
  const auto load = [&]() -> std::string {
    run.data_fingerprint = data_fingerprint(run.config, *run.train);
    ResumeChoice choice;
    add_places(run.config, [&] { choice = choose_checkpoint(run.config, print_warning); });
    const std::string file = choice.file;
    state.in_folder = choice.in_folder;
    state.reason = std::move(choice.reason);
    state.record = std::move(choice.record);
    run.notes.insert(run.notes.end(), choice.notes.begin(), choice.notes.end());
    if (file.empty()) return "";
    Checkpoint checkpoint = read_checkpoint(file, sharded_names(run));
    const std::vector<ConfigChange> changes = config_changes(checkpoint.config, run.config);
    check_checkpoint(run, checkpoint, file, changes, choice.named, log);
    for (const ConfigChange& change : changes) state.changes.push_back(change.str());
    if (!checkpoint.data.empty() && checkpoint.data != run.data_fingerprint) {
      state.changes.push_back(fmt::format("training data: {} -> {}", checkpoint.data, run.data_fingerprint));
    }
    std::vector<HostTensor> average;
    average_in_file = !checkpoint.average.empty();
    if (run.head) rows = open_rows(file);
    if (run.average) average = take_average(run, checkpoint, file);
    tensors = {std::move(checkpoint.model), std::move(checkpoint.optimizer)};
    if (run.average) tensors.optimizer.emplace_back(kAverageSlot, std::move(average));
    // The log says what has happened since: the checkpoint was written before the evaluation.
    const bool evaluates = checkpoint.evaluation_due && run.validation != nullptr &&
                           !(state.in_folder && was_evaluated(run_folder(run.config), checkpoint.step));
    EarlyStop early_stop(run.config.train.early_stop_epochs, run.config.train.early_stop_metric);
    if (run.config.train.early_stop_epochs > 0 && state.in_folder) {
      early_stop.add_from(run_folder(run.config) + "/metrics.jsonl", checkpoint.step);
    }
    return fmt::format("{} {} {} {} {:d} {:d} {}", checkpoint.step, checkpoint.epoch, checkpoint.samples_seen,
                       checkpoint.loss_scale, evaluates, early_stop.reached(), file);
  };
  const std::string found = on_root(*run.communicator, load, "resuming from a checkpoint");
  if (found.empty()) {
    load_start_weights(run);
    return state;
  }
  std::istringstream text(found);
  double loss_scale = 1;
  text >> state.step >> state.epoch >> state.samples_seen >> loss_scale >> state.evaluation_due >> state.early_stop >>
      std::ws;
  run.loss_scaler.restore(loss_scale);
  std::getline(text, state.source);
  scatter_state(run, tensors, state.source);
  if (run.head) scatter_head(run, head_parts(run, average_in_file), rows.get());
  follow_epochs(run, state);
  return state;
}

void load_model(Run& run, const std::string& file) { load_weights(run, file, ""); }

bool load_average(Run& run, const std::string& file) {
  StateTensors tensors;
  std::unique_ptr<TensorRows> rows;
  const auto load = [&]() -> std::string {
    std::vector<HostTensor> average = read_average(file, sharded_names(run));
    if (average.empty()) return "";
    check_average(run, average, file);
    if (run.head) rows = open_rows(file);
    tensors.model = read_model_weights(file, sharded_names(run));
    for (HostTensor& tensor : tensors.model) {
      const auto found = std::find_if(average.begin(), average.end(),
                                      [&](const HostTensor& other) { return other.name == tensor.name; });
      if (found != average.end()) tensor = std::move(*found);
    }
    return "found";
  };
  if (on_root(*run.communicator, load, "loading the average of the weights").empty()) return false;
  scatter_state(run, tensors, file);
  if (run.head) scatter_head(run, {{"/ema", run.model->parameters().values()}}, rows.get());
  return true;
}

void load_start_weights(Run& run) {
  const ModelOptions& model = run.config.model;
  if (!model.weights.empty()) load_weights(run, model.weights, model.reset_head ? head_prefix(*run.model) : "");
}

}  // namespace convoy
