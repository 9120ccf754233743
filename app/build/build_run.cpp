// SPDX-License-Identifier: Apache-2.0
#include "app/build/build_run.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "app/base/error_report.h"
#include "app/build/build_backend.h"
#include "app/build/build_data.h"
#include "app/build/build_model.h"
#include "app/build/config_checks.h"
#include "app/build/data_staging.h"
#include "app/build/read_config.h"
#include "app/build/run_state.h"
#include "app/build/start_check.h"
#include "app/config/config_printer.h"
#include "layers/backend/observe/profile_backend.h"
#include "layers/base/error.h"
#include "layers/cpu/cpu_load.h"
#include "parallel/comm/agree.h"
#include "parallel/comm/statistics_reducer.h"
#include "parallel/engine/executor.h"
#include "parallel/engine/scatter_runner.h"

namespace convoy {

namespace {

constexpr double kLoadTimeout = 600;  // seconds, until the config says parallel.timeout

bool needs_costs(const Run& run) {
  return run.layout.schedule.virtual_stages() > 1 && run.config.parallel.partition.first_units.empty();
}

// The CPUs of rank 0, how busy they were since the start with what none of the run's ranks did, and whether it has more
// threads; empty on the other ranks. Collective.
std::string describe_load(const World& world, const Run& run) {
  const auto& [mask, quota] = world.cpu_limits();
  const CpuReading now = read_cpus([&allowed = mask](int cpu) { return allowed.has(cpu); });
  const std::string place = world.host() + " " + mask.str();
  const double own = now.own - world.load_at_start().own;
  double ours = run.communicator->broadcast(place, 0, "CPUs of rank 0") == place ? own : 0;
  run.communicator->all_reduce(std::span<double>(&ours, 1), ReduceOp::kSum, "CPU times");
  if (!run.is_root()) return "";
  const auto others = others_share(world.load_at_start().cpus, now.cpus, ours);
  std::string line = describe_cpus(mask.count(), quota.cpus, others);
  const double cpus = quota.cpus > 0 ? std::min(quota.cpus, static_cast<double>(mask.count())) : mask.count();
  if (!run.device.on_gpu() && run.device.threads > cpus) {
    line += fmt::format("; device.threads = {} is more, so that threads take turns", run.device.threads);
  }
  return line;
}

// What needs no word with other ranks: layout and backend.
void build_basics(Run& run, const World& world, int ranks) {
  const Config& c = run.config;
  run.layout = plan_layout(c, ranks);
  run.host = world.host();
  run.device = choose_device(c, rank_place(world));
  check_replay(c, run.device.on_gpu());
  run.contention = std::make_unique<ContentionMonitor>(c.device.wait_policy);
  run.backend = build_backend(c, run.device);
}

void build_plan(Run& run, RunPurpose purpose) {
  const Config& c = run.config;
  run.plan = {run.train->size(), c.train.global_batch_size, c.data.drop_last};
  if (purpose != RunPurpose::kEvaluation)
    check_plan(c, run.plan, std::int64_t{run.layout.mesh.replicas()} * run.layout.schedule.microbatches);
  run.total_steps = c.train.steps ? *c.train.steps : *c.train.epochs * run.plan.steps_per_epoch();
  run.lr = lr_schedule(c, run.plan.steps_per_epoch(), run.total_steps);
  if (needs_costs(run)) {  // an error in the model before it is measured
    static_cast<void>(describe_model(c, *run.backend, *run.train, run.layout.microbatch(c.train.global_batch_size)));
  }
}

void build_communicators(Run& run, const RankGroup& ranks) {
  const ParallelOptions& c = run.config.parallel;
  const int replica = run.replica();
  const int stage = run.stage();
  const auto of_device = [&](std::unique_ptr<Communicator> host, Traffic traffic, const char* name) {
    Backend& device = run.device_backend ? *run.device_backend : *run.backend;
    return device_communicator(std::move(host), device, run.config, traffic, name);
  };
  run.replicas = of_device(ranks.split(stage, replica, c.timeout, "replicas"), Traffic::kCollectives, "replicas");
  if (run.layout.mesh.stages() > 1) {
    const Traffic traffic = run.config.optimizer.clip_norm > 0 ? Traffic::kBoth : Traffic::kMessages;
    run.stages = of_device(ranks.split(replica, stage, c.timeout, "stages"), traffic, "stages");
  }
  run.head = make_head(run.config, run.layout, *run.replicas, *run.backend);
  if (!c.sync_batch_norm || run.layout.mesh.replicas() == 1) return;
  run.batch_norm = ranks.split(stage, replica, c.timeout, "batch norm");
  run.reducer = std::make_unique<CommunicatorStatisticsReducer>(*run.batch_norm);
}

// Statistics that are reduced over replicas pass through the host, which no recording can hold.
StepRecording::Record recorder(Run& run) {
  if (!run.device.on_gpu() || !run.config.device.graphs || run.reducer) return {};
  return [&backend = *run.backend](const std::function<void()>& step) { return backend.record(step); };
}

// Shapes only; the model has no memory yet.
void cut_and_check(Run& run) {
  const Config& c = run.config;
  const auto infos = describe_model(c, *run.backend, *run.train, run.layout.microbatch(c.train.global_batch_size));
  if (!c.data.train_sizes.empty() && run.validation) {
    check_image_size(c, *run.backend, *run.validation, run.validation->sample_shape()[1], "data.image_size");
  }
  check_outputs(c, *run.train, infos.back().output);
  cut_model(run.layout, c, infos, run.device.memory_bytes);
}

void build_model(Run& run) {
  const Config& c = run.config;
  const Shape input = microbatch_shape(*run.train, run.layout.microbatch(c.train.global_batch_size));
  run.model =
      std::make_unique<Model>(*run.backend, build_units(c, *run.train), input, c.run.seed, run.reducer.get(),
                              stage_chunks(run.layout.schedule, run.layout.partition, run.stage()), run.head.get());
}

// Gradients lie where their all-reduce is fastest. All ranks together: memory is shared between them.
void place_gradients(Run& run) {
  if (run.config.parallel.mode == ParallelMode::kScatter) return;
  ParameterStore& store = run.model->parameters();
  if (const Tensor memory = run.replicas->reduction_memory(store.learned_values().size()))
    store.place_gradients(memory);
}

void build_runner(Run& run, RunPurpose purpose) {
  const Config& c = run.config;
  run.optimizer = make_optimizer(c.optimizer.update, *run.backend, run.model->parameters(), c.optimizer.no_decay,
                                 optimizer_shard(c, *run.replicas));
  if (purpose != RunPurpose::kEvaluation) run.average = make_average(c, *run.model);
  run.loss_scaler = LossScaler(run.backend->compute_type() == DType::kF16);
  run.replay = make_replay(c, *run.model, *run.optimizer, *run.communicator, run.stage());
  run.runner =
      make_runner(c, run.layout, {run.stage(), run.stages.get(), run.replicas.get(), run.head.get()}, *run.model,
                  *run.optimizer, run.loss_scaler, recorder(run), run.replay.get(), run.average.get());
}

}  // namespace

LoadedConfig load_config(const RankGroup& ranks, const std::string& path, const std::vector<std::string>& overrides) {
  const auto first = ranks.communicator(kLoadTimeout, "start-up");
  check_same_command(*first, path, overrides);
  LoadedConfig loaded;
  Config own;
  const std::string text = on_root(
      *first,
      [&] {
        own = read_config(path, overrides);
        return resolved_toml(own, false);
      },
      "reading the config");
  print_note(own.note);
  loaded.config = ranks.rank() == 0 ? own : parse_config(text, path, {}, InputFiles::kTrust);
  loaded.communicator = ranks.communicator(loaded.config.parallel.timeout, "world");
  return loaded;
}

std::unique_ptr<Run> build_run(const World& world, const RankGroup& ranks, LoadedConfig loaded, Instrument instrument) {
  auto run = std::make_unique<Run>();
  run->config = std::move(loaded.config);
  run->communicator = std::move(loaded.communicator);
  Communicator& all = *run->communicator;
  DataPlaces data{run->config.data.train, run->config.data.validation, {}};
  if (loaded.stage_data) data = stage_data(run->config, world, ranks, all, loaded.check_stop);
  run->notes = data.lines;
  agree(
      all, [&] { add_places(run->config, [&] { build_basics(*run, world, ranks.size()); }); }, "building the run");
  DataSets sets = build_data(run->config, data.train, data.validation, all, world.local_rank() == 0);
  run->train = std::move(sets.train);
  run->validation = std::move(sets.validation.data);
  if (!sets.validation.note.empty()) run->notes.push_back(sets.validation.note);
  agree(
      all, [&] { add_places(run->config, [&] { build_plan(*run, loaded.purpose); }); }, "planning the steps");
  check_devices(all, run->config, run->device, run->host);
  if (instrument == Instrument::kProfile) {
    run->device_backend = std::move(run->backend);
    run->backend = std::make_unique<ProfileBackend>(*run->device_backend);
  }
  build_communicators(*run, ranks);
  // eval and predict go over the training data, or what has its shape, where there are no validation data.
  const bool only_evaluates = loaded.purpose == RunPurpose::kEvaluation;
  const Dataset* evaluated = run->validation ? run->validation.get() : only_evaluates ? run->train.get() : nullptr;
  const MemoryRequest request{run->config,
                              run->layout,
                              all.rank(),
                              data_shape(run->config, *run->train),
                              evaluated != nullptr ? std::optional(data_shape(run->config, *evaluated)) : std::nullopt,
                              loaded.purpose,
                              run->device,
                              world.node_count() == 1 && !run->device.on_gpu()};
  double measuring_peak = 0;
  if (needs_costs(*run)) {
    measuring_peak = check_memory_of_measuring(request, all, run->host);
    const std::int64_t samples = run->layout.microbatch(run->config.train.global_batch_size);
    run->layout.costs = measure_costs(run->config, *run->train, samples, run->device, all, loaded.check_stop);
  }
  agree(
      all, [&] { add_places(run->config, [&] { cut_and_check(*run); }); }, "cutting the model");
  run->memory = check_memory(request, all, run->host, measuring_peak);
  agree(
      all, [&] { add_places(run->config, [&] { build_model(*run); }); }, "building the model");
  place_gradients(*run);
  agree(
      all, [&] { build_runner(*run, loaded.purpose); }, "building the optimizer");
  check_same_run(*run);
  if (loaded.purpose != RunPurpose::kTraining) load_start_weights(*run);
  run->cpus = describe_load(world, *run);
  if (loaded.purpose != RunPurpose::kEvaluation) {
    // One reader of a node and one of a GPU.
    const bool reads_gpu = !run->config.device.share_gpu || world.local_rank() == run->device.gpu;
    run->energy = std::make_unique<EnergyMeter>(world.local_rank() == 0, reads_gpu ? run->device.gpu_uuid : "");
  }
  return run;
}

std::unique_ptr<StepRunner> make_runner(const Config& config, const Layout& layout,
                                        const Executor::Coordinates& coordinates, Model& model, Optimizer& optimizer,
                                        LossScaler& scaler, StepRecording::Record record, Replay* replay,
                                        WeightAverage* average) {
  const UpdateOptions update{config.optimizer.clip_norm, average};
  if (config.parallel.mode == ParallelMode::kScatter) {
    return std::make_unique<ScatterRunner>(model, optimizer, config.train.loss, normalization(config.data),
                                           *coordinates.replicas, scaler, update);
  }
  const Executor::Buckets buckets{config.parallel.first_bucket_mb, config.parallel.bucket_mb};
  return std::make_unique<Executor>(model, optimizer, config.train.loss, normalization(config.data), layout.schedule,
                                    coordinates, buckets, scaler, std::move(record), replay, update);
}

OptimizerShard optimizer_shard(const Config& config, const Communicator& replicas) {
  return config.parallel.shard_optimizer ? OptimizerShard{replicas.rank(), replicas.size()} : OptimizerShard{};
}

std::unique_ptr<ShardedHead> make_head(const Config& config, const Layout& layout, Communicator& replicas,
                                       Backend& backend) {
  if (!config.parallel.shard_head || replicas.size() == 1) return nullptr;
  return std::make_unique<ShardedHead>(replicas, backend, layout.microbatch(config.train.global_batch_size));
}

std::unique_ptr<WeightAverage> make_average(const Config& config, Model& model) {
  if (config.train.ema_decay == 0) return nullptr;
  return std::make_unique<WeightAverage>(config.train.ema_decay, model.backend(), model.parameters());
}

std::unique_ptr<Replay> make_replay(const Config& config, Model& model, Optimizer& optimizer, Communicator& all,
                                    int stage) {
  if (config.run.replay_every == 0) return nullptr;
  return std::make_unique<Replay>(config.run.replay_every, model, optimizer, all, stage);
}

LoaderOptions loader_options(const Config& config, const Layout& layout, int replica, int stage, int threads,
                             bool evaluation) {
  LoaderOptions options;
  options.global_batch = config.train.global_batch_size;
  options.drop_last = config.data.drop_last && !evaluation;
  options.evaluation = evaluation;
  options.replica = replica;
  options.replicas = layout.mesh.replicas();
  options.microbatches = layout.schedule.microbatches;
  options.threads = threads;
  if (!evaluation) options.augmentation = config.data.augmentation();
  if (!evaluation) options.class_weights = config.data.class_weights;
  options.seed = config.run.seed;
  if (config.parallel.mode == ParallelMode::kScatter) {
    if (evaluation) return options;                   // each rank evaluates its share
    options.inputs = options.targets = replica == 0;  // the root reads everything
    options.replica = 0;
    options.replicas = 1;
    return options;
  }
  const Schedule& schedule = layout.schedule;
  options.inputs = schedule.stage_of(0) == stage;
  options.targets = schedule.stage_of(schedule.virtual_stages() - 1) == stage;
  return options;
}

namespace {

// Threads that hang in the system cannot be joined, so the process ends here.
LoaderOptions with_deadline(const Run& run, LoaderOptions options) {
  options.timeout = run.config.parallel.timeout;
  options.on_late = [host = run.host, rank = run.communicator->rank()](const std::string& text) {
    report_error(fmt::format("{} (rank {} on {})", text, rank, host), host);
    std::_Exit(static_cast<int>(ExitCode::kFailure));
  };
  return options;
}

}  // namespace

LoaderOptions training_loader(const Run& run) {
  return with_deadline(
      run, loader_options(run.config, run.layout, run.replica(), run.stage(), run.device.loader_threads, false));
}

LoaderOptions evaluation_loader(const Run& run) {
  return with_deadline(
      run, loader_options(run.config, run.layout, run.replica(), run.stage(), run.device.loader_threads, true));
}

}  // namespace convoy
