// SPDX-License-Identifier: Apache-2.0
#include "app/build_run.h"

#include <cmath>

#include "app/build_data.h"
#include "app/config_printer.h"
#include "app/config_reader.h"
#include "app/version.h"
#include "io/checkpoint.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/models/models.h"
#include "parallel/agree.h"
#include "parallel/statistics_reducer.h"

namespace convoy {

namespace {

constexpr double kLoadTimeout = 600;  // seconds, until the config says parallel.timeout

std::int64_t output_size(const Config& config, const Dataset& data) {
  if (data.target_size() > 0) return data.target_size();
  if (config.model.name == ModelKind::kToy) return 5;
  return config.model.classes > 0 ? config.model.classes : data.classes();
}

std::vector<LayerSpec> layer_specs(const std::vector<LayerConfig>& layers) {
  std::vector<LayerSpec> specs;
  for (const LayerConfig& layer : layers) {
    const std::int64_t outputs = std::max({layer.out_features, layer.out_channels, layer.channels});
    specs.push_back({std::string(to_string(layer.type)), layer.name, outputs,
                     std::max<std::int64_t>(1, layer.kernel_size), layer.stride, layer.padding, layer.bias});
  }
  return specs;
}

std::vector<Unit> build_units(const ModelConfig& model, std::int64_t outputs) {
  const Stem stem = model.stem == StemKind::kSmall ? Stem::kSmall : Stem::kImagenet;
  switch (model.name) {
    case ModelKind::kToy: return toy_model(outputs);
    case ModelKind::kMlp: return mlp_model(model.hidden, outputs);
    case ModelKind::kResnet18: return resnet_model(18, stem, outputs);
    case ModelKind::kResnet34: return resnet_model(34, stem, outputs);
    case ModelKind::kResnet50: return resnet_model(50, stem, outputs);
    case ModelKind::kResnet101: return resnet_model(101, stem, outputs);
    case ModelKind::kResnet152: return resnet_model(152, stem, outputs);
    case ModelKind::kSequential: return sequential_model(layer_specs(model.layers));
  }
  fail("model.name: unknown");
}

OptimizerSpec optimizer_spec(const OptimizerConfig& c) {
  OptimizerSpec spec;
  if (c.name == OptimizerKind::kAdamw) spec.kind = OptimizerSpec::Kind::kAdamw;
  if (c.name == OptimizerKind::kLars) spec.kind = OptimizerSpec::Kind::kLars;
  spec.momentum = static_cast<float>(c.momentum);
  spec.nesterov = c.nesterov;
  spec.weight_decay = static_cast<float>(c.weight_decay);
  spec.beta1 = c.betas[0];
  spec.beta2 = c.betas[1];
  spec.epsilon = static_cast<float>(c.epsilon);
  spec.trust = static_cast<float>(c.trust);
  return spec;
}

LrSchedule lr_schedule(const Config& config, std::int64_t steps_per_epoch, std::int64_t total_steps) {
  const LrScheduleConfig& c = config.lr_schedule;
  const auto steps = [&](double epochs) { return std::llround(epochs * static_cast<double>(steps_per_epoch)); };
  LrSchedule schedule;
  switch (c.name) {
    case LrScheduleKind::kConstant: break;
    case LrScheduleKind::kStep: schedule.kind = LrSchedule::Kind::kStep; break;
    case LrScheduleKind::kCosine: schedule.kind = LrSchedule::Kind::kCosine; break;
    case LrScheduleKind::kPolynomial: schedule.kind = LrSchedule::Kind::kPolynomial; break;
  }
  schedule.lr = config.optimizer.lr;
  schedule.final_lr = c.final_lr;
  schedule.total_steps = total_steps;
  schedule.warmup_steps = steps(c.warmup_epochs);
  for (const double epoch : c.milestones) schedule.milestones.push_back(steps(epoch));
  schedule.gamma = c.gamma;
  schedule.power = c.power;
  return schedule;
}

Normalization normalization(const DataConfig& data) {
  return {{data.mean.begin(), data.mean.end()}, {data.std.begin(), data.std.end()}};
}

void check_outputs(const Run& run) {
  const std::int64_t wanted = output_size(run.config, *run.train);
  const Shape& output = run.model->output_shape();
  if (output.rank() != 2 || output[1] != wanted) {
    fail_usage("model: its output is {}, but the data has {} {} (make the last layer put out that many)", output.str(),
               wanted, run.train->target_size() > 0 ? "targets" : "classes");
  }
}

void load_weights(Run& run) {
  const ModelConfig& c = run.config.model;
  if (c.weights.empty()) return;
  agree(
      *run.communicator,
      [&] {
        if (!run.is_root()) return;
        const std::string skip = c.reset_head ? head_prefix(*run.model) : "";
        run.model->parameters().import_model(read_model_weights(c.weights), c.weights, skip);
      },
      "loading model.weights");
  broadcast_state(run);
}

// Ranks that would silently compute different things are found here, before training.
void check_same_program(Run& run) {
  const std::string mine =
      fmt::format("convoy {}, {}, {} samples, {} parameter elements", program_version(),
                  OnednnBackend::library_description(), run.train->size(), run.model->parameters().values().size());
  const std::vector<std::string> all = run.communicator->all_gather(mine, "start-up check");
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    Error error(fmt::format("rank {} runs \"{}\" and rank 0 \"{}\" (start the same program on the same data and the "
                            "same kind of CPU everywhere)",
                            rank, all[rank], all[0]),
                ExitCode::kUsage);
    error.set_collective();
    throw error;
  }
}

void build_objects(Run& run, const World& world) {
  const Config& c = run.config;
  const int ranks = world.size();
  const int microbatches = static_cast<int>(c.parallel.microbatches);
  check_batch(c.train.global_batch_size, run.mesh.replicas(), microbatches);
  run.threads = c.device.threads > 0 ? static_cast<int>(c.device.threads) : world.thread_share();
  const DType compute = c.train.precision == PrecisionKind::kBf16 ? DType::kBF16 : DType::kF32;
  run.backend = std::make_unique<OnednnBackend>(run.threads, compute);
  run.train = build_dataset(c, c.data.train, "data.train");
  if (!c.data.validation.empty()) run.validation = build_dataset(c, c.data.validation, "data.validation");
  check_data(c, *run.train, run.validation.get());
  run.plan = {run.train->size(), c.train.global_batch_size, c.data.drop_last};
  check_plan(c, run.plan, ranks * microbatches);
  run.total_steps = c.train.steps ? *c.train.steps : *c.train.epochs * run.plan.steps_per_epoch();
  run.lr = lr_schedule(c, run.plan.steps_per_epoch(), run.total_steps);

  const Shape sample = run.train->sample_shape();
  const std::int64_t microbatch = c.train.global_batch_size / (run.mesh.replicas() * microbatches);
  const Shape input =
      sample.rank() == 3 ? Shape{microbatch, sample[0], sample[1], sample[2]} : Shape{microbatch, sample[0]};
  run.model = std::make_unique<Model>(*run.backend, build_units(c.model, output_size(c, *run.train)), input, c.run.seed,
                                      run.reducer.get());
  check_outputs(run);
  run.optimizer = make_optimizer(optimizer_spec(c.optimizer), *run.backend, run.model->parameters());
  const Loss loss{c.train.loss == LossKind::kMse ? Loss::Kind::kMse : Loss::Kind::kCrossEntropy,
                  static_cast<float>(c.train.label_smoothing)};
  run.executor = std::make_unique<Executor>(*run.model, *run.optimizer, loss, normalization(c.data),
                                            one_stage_schedule(microbatches), run.replicas.get(),
                                            Executor::Buckets{c.parallel.first_bucket_mb, c.parallel.bucket_mb});
}

}  // namespace

LoadedConfig load_config(World& world, const std::string& path, const std::vector<std::string>& overrides) {
  const auto first = world.communicator(kLoadTimeout, "start-up");
  LoadedConfig loaded;
  Config own;
  const std::string text = on_root(
      *first,
      [&] {
        own = read_config(path, overrides);
        return resolved_toml(own, false);
      },
      "reading the config");
  loaded.config = world.rank() == 0 ? own : parse_config(text, path, {}, InputFiles::kTrust);
  loaded.communicator = world.communicator(loaded.config.parallel.timeout, "world");
  return loaded;
}

std::unique_ptr<Run> build_run(World& world, LoadedConfig loaded) {
  auto run = std::make_unique<Run>();
  run->config = std::move(loaded.config);
  run->communicator = std::move(loaded.communicator);
  run->mesh = Mesh(world.size(), 1);
  const ParallelConfig& parallel = run->config.parallel;
  run->replicas = world.communicator(parallel.timeout, "replicas");
  if (parallel.sync_batch_norm && world.size() > 1) {
    run->batch_norm = world.communicator(parallel.timeout, "batch norm");
    run->reducer = std::make_unique<CommunicatorStatisticsReducer>(*run->batch_norm);
  }
  agree(
      *run->communicator, [&] { build_objects(*run, world); }, "building the run");
  check_same_program(*run);
  load_weights(*run);
  return run;
}

LoaderOptions loader_options(const Run& run) {
  LoaderOptions options;
  options.global_batch = run.config.train.global_batch_size;
  options.drop_last = run.config.data.drop_last;
  options.replica = run.replica();
  options.replicas = run.mesh.replicas();
  options.microbatches = static_cast<int>(run.config.parallel.microbatches);
  options.threads = static_cast<int>(run.config.data.loader_threads);
  return options;
}

void broadcast_state(Run& run) {
  Communicator& all = *run.communicator;
  ParameterStore& store = run.model->parameters();
  all.broadcast(store.values(), 0, "parameters")->wait();
  if (store.running().size() > 0) all.broadcast(store.running(), 0, "running statistics")->wait();
  for (const auto& [name, slot] : run.optimizer->slots()) all.broadcast(slot, 0, "optimizer " + name)->wait();
  std::vector<std::int64_t> counts = store.batch_counts();
  if (!counts.empty()) {
    const Tensor tensor = run.backend->tensor({static_cast<std::int64_t>(counts.size())}, DType::kI64);
    run.backend->copy_from_host(counts.data(), tensor);
    all.broadcast(tensor, 0, "batch counts")->wait();
    run.backend->copy_to_host(tensor, counts.data());
    store.set_batch_counts(counts);
  }
  store.refresh_compute();
}

std::string head_prefix(const Model& model) {
  const auto name = const_cast<Model&>(model).parameters().parameters().back()->name;
  return name.substr(0, name.rfind('.') + 1);
}

}  // namespace convoy
