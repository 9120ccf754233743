// SPDX-License-Identifier: Apache-2.0
//
// A run as typed data: the options of all parts of the program, one struct for each section of the TOML file
// (docs/interface.md says what each key means). Options stand beside the code that they configure; those here belong to
// the program itself. Nothing here reads or prints. A Config from config_reader is valid: every value is in range and
// options that do not belong to the chosen model, data, optimizer and schedule have their defaults.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint_options.h"
#include "io/data/data_options.h"
#include "layers/backend/device_options.h"
#include "layers/base/options.h"
#include "layers/loss.h"
#include "layers/models/models.h"
#include "layers/optim/lr_schedule.h"
#include "layers/optim/optimizer.h"
#include "parallel/schedule/parallel_options.h"

namespace convoy {

/// The names of signals that run.stop_signals may hold.
[[nodiscard]] std::span<const std::string_view> signal_names();

/// [run]
struct RunOptions {
  std::string name;  ///< the config file's name without its ending unless given
  std::string dir = "runs";
  std::uint64_t seed = 42;
  std::optional<std::chrono::seconds> max_time;
  std::vector<std::string> stop_signals = {"SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT"};
  bool allow_over_memory = false;
  std::int64_t replay_every = 0;  ///< steps; 0: never

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("name", o.name, anything(), "folder of the run in run.dir; default: the config file's name");
    v.key("dir", o.dir, anything(), "where run folders are kept");
    v.key("seed", o.seed, at_least(0), "of the initial weights, the order of samples and synthetic data");
    v.key("max_time", o.max_time, anything(),
          "stop with a checkpoint after this time; \"\": at the end of the Slurm job, less a margin");
    v.key("stop_signals", o.stop_signals, one_of(signal_names()), "stop with a checkpoint on these");
    v.key("allow_over_memory", o.allow_over_memory, anything(), "start even if the predicted memory is not there");
    v.key("replay_every", o.replay_every, between(0, kMaxCount), "compute every N-th step twice and compare; 0: never");
  }
  bool operator==(const RunOptions&) const = default;
};

/// What train.early_stop_metric may name.
inline constexpr auto kEarlyStopMetrics = std::to_array<std::string_view>({"top1", "loss"});

/// [train]; exactly one of epochs and steps is there.
struct TrainOptions {
  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;
  std::int64_t global_batch_size = 0;
  Loss loss;
  Precision precision = Precision::kFp32;
  std::int64_t eval_every_epochs = 1;  ///< 0: only at the end
  double ema_decay = 0;                ///< of the average of the weights; 0: none
  std::int64_t early_stop_epochs = 0;  ///< evaluations without improvement; 0: any number
  std::string early_stop_metric = "top1";

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("epochs", o.epochs, between(1, kMaxCount), "times through the data; or give steps");
    v.key("steps", o.steps, between(1, kMaxCount), "optimizer steps; or give epochs");
    v.key("global_batch_size", o.global_batch_size, between(1, 1e9).required(), "samples per step, over all ranks");
    visit_options(v, o.loss);
    v.key("precision", o.precision, anything(), "of activations and gradients; weights are kept in fp32");
    v.key("eval_every_epochs", o.eval_every_epochs, between(0, kMaxCount), "0: only at the end");
    v.key("ema_decay", o.ema_decay, below(0, 1), "decay a step of the average of the weights; 0: no average");
    v.key("early_stop_epochs", o.early_stop_epochs, between(0, kMaxCount),
          "end after so many evaluated epochs in a row without improvement; 0: never");
    v.key(
        "early_stop_metric", o.early_stop_metric,
        one_of(kEarlyStopMetrics)
            .only_if(o.early_stop_epochs > 0, "is ignored without train.early_stop_epochs (set it, or leave this out)"),
        "what is to improve");
  }
  bool operator==(const TrainOptions&) const = default;
};

enum class ProgressMode { kAuto, kBar, kLines, kOff };
CONVOY_OPTION_ENUM(ProgressMode, "auto", "bar", "lines", "off");

/// [log]
struct LogOptions {
  ProgressMode progress = ProgressMode::kAuto;
  std::int64_t every_steps = 1;
  bool tensorboard = true;
  bool trace = false;
  std::string prometheus;  ///< a file for node_exporter; empty: none

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("progress", o.progress, anything(), "auto: a bar on a terminal, else lines");
    v.key("every_steps", o.every_steps, between(1, kMaxCount), "steps from one metrics line to the next");
    v.key("tensorboard", o.tensorboard, anything(), "write event files");
    v.key("trace", o.trace, anything(), "record what each rank does when, in trace.json");
    v.key("prometheus", o.prometheus, anything(),
          "a file that ends in .prom, in the folder of node_exporter's textfile collector, for the newest numbers; "
          "\"\": none");
  }
  bool operator==(const LogOptions&) const = default;
};

/// A whole run.
struct Config {
  RunOptions run;
  DeviceOptions device;
  ModelOptions model;
  DataOptions data;
  TrainOptions train;
  OptimizerOptions optimizer;
  LrScheduleOptions lr_schedule;
  ParallelOptions parallel;
  CheckpointOptions checkpoint;
  LogOptions log;

  /// Floats of state for each parameter, beside its value and its gradient.
  [[nodiscard]] double slots() const { return slots_of_replica(1); }
  /// The same on one of so many replicas, which may divide the state of the optimizer among them.
  [[nodiscard]] double slots_of_replica(int replicas) const {
    return optimizer.slots() / (parallel.shard_optimizer ? replicas : 1) + (train.ema_decay > 0 ? 1 : 0);
  }

  /// Where each given key came from, by "section.key": "FILE:LINE" or "--set". What is absent is a default.
  std::map<std::string, std::string> origins;

  /// Which keys of the file were set aside because an override replaced what they belong to; empty: none.
  std::string note;

  /// Where a key was given, or would have been: "FILE:LINE:COLUMN" or "--set". Empty for a config that was not read.
  std::function<std::string(std::string_view)> place;

  /// Equal values; where they came from does not count.
  bool operator==(const Config& other) const {
    return run == other.run && device == other.device && model == other.model && data == other.data &&
           train == other.train && optimizer == other.optimizer && lr_schedule == other.lr_schedule &&
           parallel == other.parallel && checkpoint == other.checkpoint && log == other.log;
  }
};

/// `run.dir/run.name`.
[[nodiscard]] std::string run_folder(const Config& config);

/// checkpoint.dir, or `checkpoints` in the run's folder.
[[nodiscard]] std::string checkpoint_folder(const Config& config);

/// The run's folder as an absolute path.
[[nodiscard]] std::string absolute_run_folder(const Config& config);

/// The folder of the run's second copies, checkpoint.copy_to/NAME-HASH with a hash of the run folder's absolute path;
/// "" without checkpoint.copy_to.
[[nodiscard]] std::string copy_folder(const Config& config);

/// The number of a signal that run.stop_signals may name ("SIGTERM"), or 0.
[[nodiscard]] int signal_number(std::string_view name);

/// Visits every option of a run, section by section, in the order in which they are printed: visitor.section(name,
/// help), then the section's options.
template <class Visitor, class C>
void visit_config(Visitor& v, C& c) {
  const auto section = [&](std::string_view name, auto& options, std::string_view help) {
    v.section(name, help);
    visit_options(v, options);
  };
  section("run", c.run, "the run: its folder, its seed, its end");
  section("device", c.device, "what computes");
  section("model", c.model, "the network");
  section("data", c.data, "what it learns from");
  section("train", c.train, "how long, in what steps");
  section("optimizer", c.optimizer, "how weights follow gradients");
  section("lr_schedule", c.lr_schedule, "how the learning rate changes");
  section("parallel", c.parallel, "how ranks share the work");
  section("checkpoint", c.checkpoint, "when checkpoints are written, and which are kept");
  section("log", c.log, "what is shown and recorded");
}

}  // namespace convoy
