// SPDX-License-Identifier: Apache-2.0
//
// From a Config to the objects of a run: the only place that knows all rooms of the house. Every rank calls these
// functions together; what is wrong with the config, the data or the launch comes out as one collective Error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/config.h"
#include "io/dataset.h"
#include "io/loader.h"
#include "io/sampler.h"
#include "layers/lr_schedule.h"
#include "layers/optimizer.h"
#include "parallel/executor.h"
#include "parallel/mesh.h"
#include "parallel/world.h"

namespace convoy {

/// The config as rank 0 reads it, on every rank; a communicator over all ranks with its timeout comes along.
struct LoadedConfig {
  Config config;
  std::unique_ptr<Communicator> communicator;
};
LoadedConfig load_config(World& world, const std::string& path, const std::vector<std::string>& overrides);

/// Everything that trains, evaluates or is timed. Members are destroyed in reverse order: users before what they use.
struct Run {
  Config config;
  Mesh mesh;
  int threads = 1;
  std::unique_ptr<Communicator> communicator;  ///< all ranks: control, losses
  std::unique_ptr<Communicator> replicas;      ///< gradients and statistics
  std::unique_ptr<Communicator> batch_norm;    ///< sync_batch_norm's own, null without
  std::unique_ptr<StatisticsReducer> reducer;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Dataset> train, validation;  ///< validation may be null
  BatchPlan plan;
  std::int64_t total_steps = 0;
  LrSchedule lr;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Executor> executor;

  [[nodiscard]] int replica() const { return mesh.replica(communicator->rank()); }
  [[nodiscard]] bool is_root() const { return communicator->rank() == 0; }
};

std::unique_ptr<Run> build_run(World& world, LoadedConfig loaded);

/// This rank's share of every global batch, from the start of the data.
LoaderOptions loader_options(const Run& run);

/// Rank 0's parameters, buffers and optimizer state, on every rank.
void broadcast_state(Run& run);

/// The name of the last layer's parameters ("fc."), which model.reset_head leaves fresh.
std::string head_prefix(const Model& model);

}  // namespace convoy
