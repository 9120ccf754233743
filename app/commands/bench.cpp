// SPDX-License-Identifier: Apache-2.0
//
// convoy bench: times training steps without checkpoints or evaluation, over every combination of cases and sweeps,
// in turn, so that what is compared was measured side by side.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/base/error_report.h"
#include "app/base/peak_memory.h"
#include "app/base/version.h"
#include "app/bench/bench_points.h"
#include "app/bench/bench_profile.h"
#include "app/bench/bench_reduction.h"
#include "app/bench/bench_table.h"
#include "app/build/build_model.h"
#include "app/build/build_run.h"
#include "app/commands/bench_reports.h"
#include "app/commands/commands.h"
#include "app/commands/write_result.h"
#include "app/train/batch_feed.h"
#include "app/train/stop.h"
#include "layers/base/clock.h"
#include "layers/base/error.h"
#include "layers/base/median.h"
#include "parallel/comm/agree.h"
#include "parallel/engine/batch_transfer.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;
constexpr std::int64_t kProfiledSteps = 10;  // at most
constexpr double kIdleTimeout = 7 * 86400;   // ranks that have no part in a point wait for the others

std::vector<std::int64_t> of_all_ranks(Communicator& all, std::int64_t number) {
  std::vector<std::int64_t> numbers;
  for (const std::string& text : all.all_gather(std::to_string(number), "numbers")) numbers.push_back(std::stoll(text));
  return numbers;
}

/// Mean seconds by name; those that did not occur are left out.
Json phases_json(const Phases& sum, double data_wait, double steps) {
  Json json{{"data_wait", data_wait / steps}};
  for (std::size_t i = 0; i < kPhaseNames.size(); ++i) {
    const bool always = i <= static_cast<std::size_t>(Phase::kOptimizer);
    if (always || sum.seconds[i] > 0) json[std::string(kPhaseNames[i])] = sum.seconds[i] / steps;
  }
  return json;
}

Json profile_json(const StepProfile& profile) {
  Json json{{"step_seconds", profile.step_seconds},
            {"matrix_flops_per_second", profile.bounds.flops_per_second},
            {"stream_bytes_per_second", profile.bounds.bytes_per_second},
            {"convolution_bound_s", profile.convolution_bound},
            {"direct_convolution_bound_s", profile.direct_convolution_bound},
            {"operations", Json::array()},
            {"layers", Json::array()}};
  for (const ProfileLine& line : lines_by_operation(profile)) {
    json["operations"].push_back({{"name", line.name},
                                  {"calls", line.calls},
                                  {"seconds", line.seconds},
                                  {"flops_per_second", line.flops_per_second},
                                  {"bytes_per_second", line.bytes_per_second},
                                  {"of_bound", line.of_bound}});
  }
  for (const LayerLine& line : lines_by_layer(profile)) {
    json["layers"].push_back({{"unit", line.unit},
                              {"layer", line.layer},
                              {"forward_s", line.forward},
                              {"backward_input_s", line.backward_input},
                              {"backward_weight_s", line.backward_weight},
                              {"flops_per_second", line.flops_per_second},
                              {"bytes_per_second", line.bytes_per_second},
                              {"of_bound", line.of_bound}});
  }
  return json;
}

void check_whole_batches(const Run& run) {
  if (run.plan.size >= run.plan.global_batch) return;
  fail_usage("train.global_batch_size: {} is more than the {} samples (bench times whole batches)",
             run.plan.global_batch, run.plan.size);
}

LoadedConfig load_point(const RankGroup& ranks, const std::string& path, const std::vector<std::string>& overrides,
                        const StopRequest& stop) {
  LoadedConfig loaded = load_config(ranks, path, overrides);
  loaded.purpose = RunPurpose::kTiming;
  loaded.check_stop = [&stop](const std::string& doing) { stop.check(doing); };
  keep_largest_size(loaded.config.data);
  return loaded;
}

Json reduction_json(Run& run, double step_wait) {
  const ReductionSpeed speed = time_reduction(run, step_wait);
  Json json{{"bytes", speed.bytes},
            {"seconds", speed.seconds},
            {"bus_bytes_per_second", speed.bus_bytes_per_second},
            {"copy_seconds", speed.copy_seconds}};
  if (run.layout.mesh.stages() == 1) json["hidden"] = speed.hidden;
  return json;
}

/// Throws a collective Error with exit code 75 if a rank has been told to stop. Waits for all ranks.
void take_stop(Run& run, const StopRequest& stop) {
  agree(
      *run.communicator, [&] { stop.check("timing steps"); }, "bench step");
}

/// Times one point; the result is complete on every rank that takes part.
Json time_steps(Run& run, const BenchArguments& arguments, const StopRequest& stop) {
  check_whole_batches(run);
  BatchFeed feed = whole_batches(run, arguments.warmup + arguments.steps);
  std::vector<double> seconds;
  Phases sum;
  double data_wait = 0;
  for (std::int64_t i = 0; i < arguments.warmup + arguments.steps; ++i) {
    take_stop(run, stop);
    if (i == arguments.warmup) static_cast<void>(run.energy->take());
    const auto start = std::chrono::steady_clock::now();
    const LoaderStep batch = feed.next();
    run.runner->train_step(batch.microbatches, batch.global_samples, run.lr.at(i), i, [&] { feed.fetch_ahead(); });
    run.communicator->barrier("bench step end");
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (i < arguments.warmup) continue;
    seconds.push_back(passed.count());
    for (std::size_t p = 0; p < sum.seconds.size(); ++p) sum.seconds[p] += run.runner->phases().seconds[p];
    data_wait += batch.wait_seconds;
  }
  std::array<double, 2> energy{run.energy->take(), run.energy->readable() ? 1.0 : 0.0};
  run.communicator->all_reduce(std::span<double>(energy), ReduceOp::kSum, "energy");
  Json result;
  result["step_seconds"] = seconds;
  result["images_per_second"] = static_cast<double>(run.plan.global_batch) / median(seconds);
  if (energy[1] > 0) result["energy_j"] = energy[0] / static_cast<double>(seconds.size());
  result["peak_memory_bytes"] = of_all_ranks(*run.communicator, peak_memory(*run.backend));
  result["backend_memory_bytes"] =
      of_all_ranks(*run.communicator, static_cast<std::int64_t>(run.backend->pool().peak_bytes()));
  result["predicted_memory_bytes"] = of_all_ranks(*run.communicator, std::llround(run.memory.peak_bytes));
  result["predicted_backend_memory_bytes"] = of_all_ranks(*run.communicator, std::llround(run.memory.backend_bytes));
  result["phases"] = phases_json(sum, data_wait, static_cast<double>(seconds.size()));
  if (run.layout.mesh.replicas() > 1 && run.config.parallel.mode != ParallelMode::kScatter) {
    const double waited = sum[Phase::kCommunicationWait] / static_cast<double>(seconds.size());
    result["reduction"] = reduction_json(run, waited);
  }
  if (run.layout.mesh.stages() > 1) result["stages"] = describe_stages(run.layout, run.model->units());
  return result;
}

/// The same of reading alone: as fast as the loader's threads can, without steps in between. Batches that were read
/// ahead before the clock started come back at its end, when as many more have been read.
Json time_data(Run& run, const BenchArguments& arguments, const StopRequest& stop) {
  take_stop(run, stop);
  check_whole_batches(run);
  const LoaderOptions options = training_loader(run);
  const auto loader = whole_batch_loader(run);
  const Shape shape = microbatch_shape(*run.train, run.layout.microbatch(run.plan.global_batch));
  BatchTransfer transfer(*run.backend, shape, shape[1], normalization(run.config.data));
  std::vector<double> seconds;
  double processor_seconds = 0, loader_seconds = 0;  // of all threads, and of the loader's; other programs do not count
  for (std::int64_t i = 0; i < arguments.warmup + arguments.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t before = std::clock();
    const double loader_before = loader->processor_seconds();
    for (const Batch& batch : loader->next().microbatches) {
      if (options.inputs) static_cast<void>(transfer.inputs(batch));
    }
    run.backend->synchronize();
    if (i < arguments.warmup) continue;
    seconds.push_back(seconds_since(start));
    processor_seconds += static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    loader_seconds += loader->processor_seconds() - loader_before;
  }
  run.communicator->barrier("end of the data");
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  Json result;
  result["loader_threads"] = options.threads;
  result["step_seconds"] = seconds;
  result["images_per_second"] = static_cast<double>(run.plan.global_batch * arguments.steps) / sum;
  const double images = static_cast<double>(run.plan.global_batch * arguments.steps) / options.replicas;  // of rank 0
  result["processor_seconds_per_image"] = processor_seconds / images;
  result["loader_processor_seconds_per_image"] = loader_seconds / images;
  result["peak_memory_bytes"] = of_all_ranks(*run.communicator, peak_memory(*run.backend));
  return result;
}

Json machine_json(const World& world, const Run& run) {
  return {{"host", world.host()},
          {"nodes", world.node_count()},
          {"device", run.backend->description()},
          {"binding", world.binding()},
          {"cpus", run.cpus},
          {"mpi", World::mpi_library().version}};
}

class Bench {
 public:
  Bench(World& world, const BenchArguments& arguments, const StopRequest& stop)
      : world_(world), arguments_(arguments), stop_(stop) {}

  void run_point(const BenchPoint& point, std::int64_t repeat) {
    const RankGroup ranks = point.ranks == 0 ? world_.ranks() : world_.ranks().first(point.ranks);
    if (ranks.size() == 0) return;
    Json result{{"case", point.words}, {"overrides", Json::object()}, {"ranks", ranks.size()}, {"repeat", repeat}};
    for (const std::string& item : point.overrides) {
      result["overrides"][item.substr(0, item.find('='))] = item.substr(item.find('=') + 1);
    }
    if (point.independent) {
      time_independently(ranks, point, result);
    } else {
      result.update(time(*build(ranks, point)));
    }
    if (world_.rank() == 0) print(point, repeat, result);
    if (arguments_.profile) profile_point(ranks, point, result);
    results_.push_back(std::move(result));
  }

  void write() {
    if (world_.rank() != 0 || arguments_.json.empty()) return;
    document_["results"] = results_;
    write_bench_json(arguments_.json, document_);
  }

 private:
  LoadedConfig load(const RankGroup& ranks, const BenchPoint& point) const {
    std::vector<std::string> overrides = arguments_.overrides;
    for (std::size_t i = 0; i < point.overrides.size(); ++i) {  // each with its option, for messages
      overrides.push_back((i < point.of_case ? "--case " : "--sweep ") + point.overrides[i]);
    }
    return load_point(ranks, arguments_.config, overrides, stop_);
  }

  std::unique_ptr<Run> build(const RankGroup& ranks, const BenchPoint& point) {
    reset_peak_memory();
    auto run = build_run(world_, ranks, load(ranks, point));
    if (world_.rank() != 0) return run;
    if (!run->memory.warning.empty()) print_warning(run->memory.warning);
    if (results_.empty()) print_start(*run);
    return run;
  }

  Json time(Run& run) const {
    return arguments_.data ? time_data(run, arguments_, stop_) : time_steps(run, arguments_, stop_);
  }

  // Ranks that wait for each other only before the first step. What is not of all of them is rank 0's.
  void time_independently(const RankGroup& ranks, const BenchPoint& point, Json& result) {
    const auto all = ranks.communicator(kIdleTimeout, "processes");
    std::unique_ptr<Run> run;
    Json own;
    agree(
        *all, [&] { run = build(self_group(), point); }, "building a process's run");
    agree(
        *all, [&] { own = time(*run); }, "timing a process");
    std::vector<double> slowest(own["step_seconds"].size());
    double rate = 0;
    Json seconds = Json::array();
    for (const std::string& text : all->all_gather(own.dump(), "results")) {
      const Json each = Json::parse(text);
      rate += each["images_per_second"].get<double>();
      seconds.push_back(each["step_seconds"]);
      for (std::size_t i = 0; i < slowest.size(); ++i)
        slowest[i] = std::max(slowest[i], seconds.back()[i].get<double>());
    }
    result.update(own);
    result["ranks"] = 1;
    result["processes"] = ranks.size();
    result["step_seconds"] = slowest;
    result["step_seconds_of_processes"] = seconds;
    result["images_per_second"] = rate;
  }

  void profile_point(const RankGroup& ranks, const BenchPoint& point, Json& result) const {
    const auto run = build_run(world_, ranks, load(ranks, point), Instrument::kProfile);
    const StepProfile profile = profile_steps(*run, std::min(arguments_.steps, kProfiledSteps));
    if (!run->is_root()) return;
    std::cout << "\n" << profile_report(profile) << "\n" << std::flush;
    result["profile"] = profile_json(profile);
  }

  void print_start(const Run& run) {
    const auto of_device = [](const std::string& words) { return words.find("device.") != std::string::npos; };
    const bool device_varies = std::any_of(arguments_.cases.begin(), arguments_.cases.end(), of_device) ||
                               std::any_of(arguments_.sweeps.begin(), arguments_.sweeps.end(),
                                           [](const Sweep& sweep) { return sweep.key.starts_with("device."); });
    document_["machine"] = machine_json(world_, run);
    print_head(world_, run, arguments_.data, device_varies);
  }

  void print(const BenchPoint& point, std::int64_t repeat, const Json& result) const {
    if (arguments_.data) return print_data_row(point, repeat, result);
    print_row(point, repeat, result);
    if (result.contains("reduction")) print_reduction(result["reduction"]);
    if (result.contains("energy_j")) {
      std::cout << fmt::format("  energy: {:.4g} J a step\n", result["energy_j"].get<double>()) << std::flush;
    }
  }

  World& world_;
  const BenchArguments& arguments_;
  const StopRequest& stop_;
  Json document_{{"program_version", program_version()}};
  Json results_ = Json::array();
};

std::vector<BenchPoint> points_of(const BenchArguments& arguments, int world_ranks) {
  std::vector<BenchPoint> points = bench_points(arguments.cases, arguments.sweeps, world_ranks);
  const bool independent = std::any_of(points.begin(), points.end(), [](const auto& each) { return each.independent; });
  if (arguments.profile && independent)
    fail_usage("--profile: is of ranks that train together (use ranks=N in --case)");
  return points;
}

}  // namespace

int bench_command(World& world, const BenchArguments& arguments) {
  if (arguments.calibrate_cpu) return calibrate(world, arguments);
  if (arguments.model_bytes) return count_bytes(world, arguments);
  const auto all = world.ranks().communicator(kIdleTimeout, "bench");
  std::vector<BenchPoint> points;
  agree(
      *all,
      [&] {
        points = points_of(arguments, world.size());
        if (world.rank() == 0) check_result_path("--json", arguments.json);
      },
      "bench");
  const StopRequest stop(RunOptions().stop_signals, std::nullopt);
  Bench bench(world, arguments, stop);
  for (std::int64_t repeat = 0; repeat < arguments.repeat; ++repeat) {
    for (const BenchPoint& point : points) {
      // Rank 0 takes part in every point: what went wrong in one for all of its ranks ends the others, too.
      std::string problem;
      try {
        bench.run_point(point, repeat);
      } catch (const Error& error) {
        if (!error.collective()) throw;
        problem = std::string(1, static_cast<char>(error.code())) + error.what();
      }
      problem = all->broadcast(problem, 0, "the end of a point");
      if (problem.empty()) {
        bench.write();  // what was measured stays, whatever comes after
        continue;
      }
      Error error(problem.substr(1), static_cast<ExitCode>(problem.front()));
      error.set_collective();
      throw error;
    }
  }
  return 0;
}

}  // namespace convoy
