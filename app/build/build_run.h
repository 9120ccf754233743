// SPDX-License-Identifier: Apache-2.0
//
// From a Config to the objects of a run: the only module that includes all others. Every rank calls these functions
// together; an error in the config, the data or the launch is one collective Error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/base/energy_meter.h"
#include "app/build/build_layout.h"
#include "app/build/device_choice.h"
#include "app/build/memory_check.h"
#include "app/build/memory_prediction.h"
#include "app/config/config.h"
#include "io/data/dataset.h"
#include "io/data/loader.h"
#include "io/data/sampler.h"
#include "layers/cpu/contention_monitor.h"
#include "layers/model.h"
#include "layers/optim/loss_scaler.h"
#include "layers/optim/lr_schedule.h"
#include "layers/optim/optimizer.h"
#include "layers/optim/weight_average.h"
#include "parallel/engine/executor.h"
#include "parallel/engine/sharded_head.h"
#include "parallel/engine/step_runner.h"
#include "parallel/world/world.h"

namespace convoy {

/// The config as rank 0 reads it, on every rank; a communicator over all ranks with its timeout comes along.
struct LoadedConfig {
  Config config;
  std::unique_ptr<Communicator> communicator;
  bool stage_data = true;  ///< false: data is read where it is, even with data.stage_dir
  RunPurpose purpose = RunPurpose::kTraining;
  CheckStop check_stop;  ///< of long work while the run is built
};
LoadedConfig load_config(const RankGroup& ranks, const std::string& path, const std::vector<std::string>& overrides);

/// Everything that trains, evaluates or is timed. Members are destroyed in reverse order: users before what they use.
struct Run {
  Config config;
  Layout layout;
  std::string host;
  DeviceChoice device;
  std::string cpus;                               ///< of this rank, and how busy they were at the start; for people
  std::unique_ptr<ContentionMonitor> contention;  ///< how this rank's threads wait
  std::unique_ptr<EnergyMeter> energy;            ///< of the node and the GPU; null in an evaluation
  std::unique_ptr<Communicator> communicator;     ///< all ranks: control, losses; host tensors
  std::unique_ptr<Backend> device_backend;        ///< only where `backend` is a profile of it
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Communicator> stages;      ///< the stages of this replica, null for one stage; the backend's tensors
  std::unique_ptr<Communicator> replicas;    ///< gradients and statistics of this stage; the backend's tensors
  std::unique_ptr<Communicator> batch_norm;  ///< sync_batch_norm's own, null without; host tensors
  std::unique_ptr<StatisticsReducer> reducer;
  std::unique_ptr<ShardedHead> head;           ///< null without parallel.shard_head
  std::unique_ptr<Dataset> train, validation;  ///< validation may be null
  std::vector<std::string> notes;              ///< what was copied on this node, and about the data; for people
  std::string data_fingerprint;                ///< rank 0, once the run was restored
  std::string loaded_weights;                  ///< what model.weights gave, for people; empty: nothing
  MemoryReport memory;                         ///< what was predicted before the model was made
  BatchPlan plan;
  std::int64_t total_steps = 0;
  std::int64_t steps_ahead = 0;  ///< of the step, at which the schedule stands: after a resumption with another batch
  LrSchedule lr;
  std::unique_ptr<Model> model;  ///< this stage's chunks
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<WeightAverage> average;  ///< null without train.ema_decay, and in runs that only evaluate
  LossScaler loss_scaler;                  ///< enabled in float16
  std::unique_ptr<Replay> replay;          ///< null without run.replay_every
  std::unique_ptr<StepRunner> runner;

  [[nodiscard]] int replica() const { return layout.mesh.replica(communicator->rank()); }
  [[nodiscard]] int stage() const { return layout.mesh.stage(communicator->rank()); }
  [[nodiscard]] bool is_root() const { return communicator->rank() == 0; }
};

/// Whether the run's operations are timed one by one: its backend then is a ProfileBackend.
enum class Instrument { kNone, kProfile };

/// world: this rank's place in its node. ranks: those that take part.
std::unique_ptr<Run> build_run(const World& world, const RankGroup& ranks, LoadedConfig loaded,
                               Instrument instrument = Instrument::kNone);

/// What runs the steps of this layout. Everything by reference outlives it.
[[nodiscard]] std::unique_ptr<StepRunner> make_runner(const Config& config, const Layout& layout,
                                                      const Executor::Coordinates& coordinates, Model& model,
                                                      Optimizer& optimizer, LossScaler& scaler,
                                                      StepRecording::Record record, Replay* replay = nullptr,
                                                      WeightAverage* average = nullptr);

/// What of the optimizer's state a replica keeps.
[[nodiscard]] OptimizerShard optimizer_shard(const Config& config, const Communicator& replicas);

/// For parallel.shard_head; null without it, and with one replica.
[[nodiscard]] std::unique_ptr<ShardedHead> make_head(const Config& config, const Layout& layout, Communicator& replicas,
                                                     Backend& backend);

/// For train.ema_decay; null without it.
[[nodiscard]] std::unique_ptr<WeightAverage> make_average(const Config& config, Model& model);

/// For run.replay_every; null without it.
[[nodiscard]] std::unique_ptr<Replay> make_replay(const Config& config, Model& model, Optimizer& optimizer,
                                                  Communicator& all, int stage);

/// What of every global batch a rank reads, from the start of the data.
[[nodiscard]] LoaderOptions loader_options(const Config& config, const Layout& layout, int replica, int stage,
                                           int threads, bool evaluation);
LoaderOptions training_loader(const Run& run);
LoaderOptions evaluation_loader(const Run& run);

}  // namespace convoy
