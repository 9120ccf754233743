// SPDX-License-Identifier: Apache-2.0
//
// convoy bench: times training steps without checkpoints or evaluation, over every combination of the sweeps.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/build_run.h"
#include "app/commands/commands.h"
#include "app/version.h"
#include "io/loader.h"
#include "layers/base/error.h"
#include "parallel/agree.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;

/// One point of the sweep: the overrides that make it, as KEY=VALUE.
using Point = std::vector<std::string>;

std::vector<Point> sweep_points(const std::vector<Sweep>& sweeps) {
  std::vector<Point> points{{}};
  for (const Sweep& sweep : sweeps) {
    std::vector<Point> next;
    for (const Point& point : points) {
      for (const std::string& value : sweep.values) {
        next.push_back(point);
        next.back().push_back(sweep.key + "=" + value);
      }
    }
    points = std::move(next);
  }
  return points;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The largest memory this process has held so far, in bytes, on every rank.
std::vector<std::int64_t> peak_memory(Communicator& all) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::vector<std::int64_t> bytes;
  for (const std::string& kib : all.all_gather(std::to_string(usage.ru_maxrss), "peak memory")) {
    bytes.push_back(std::stoll(kib) * 1024);
  }
  return bytes;
}

/// Times one point; the result is complete on every rank.
Json time_steps(Run& run, const BenchArguments& arguments) {
  if (run.plan.size < run.plan.global_batch) {
    fail_usage("train.global_batch_size: {} is more than the {} samples (bench times whole batches)",
               run.plan.global_batch, run.plan.size);
  }
  const Sampler sampler(run.train->size(), run.config.run.seed, run.config.data.shuffle);
  LoaderOptions options = loader_options(run);
  options.drop_last = true;  // every timed step has the same size
  Loader loader(*run.train, sampler, options);
  std::vector<double> seconds;
  StepPhases sum;
  double data_wait = 0;
  for (std::int64_t i = 0; i < arguments.warmup + arguments.steps; ++i) {
    run.communicator->barrier("bench step");
    const auto start = std::chrono::steady_clock::now();
    const LoaderStep& batch = loader.next();
    run.executor->train_step(batch.microbatches, batch.global_samples, run.lr.at(i), i);
    run.communicator->barrier("bench step end");
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (i < arguments.warmup) continue;
    seconds.push_back(passed.count());
    const StepPhases& phases = run.executor->phases();
    sum.forward += phases.forward;
    sum.backward += phases.backward;
    sum.communication += phases.communication;
    sum.optimizer += phases.optimizer;
    data_wait += batch.wait_seconds;
  }
  const auto n = static_cast<double>(seconds.size());
  Json result;
  result["step_seconds"] = seconds;
  result["images_per_second"] = static_cast<double>(run.plan.global_batch) / median(seconds);
  result["peak_memory_bytes"] = peak_memory(*run.communicator);
  result["phases"] = {{"data_wait", data_wait / n},
                      {"forward", sum.forward / n},
                      {"backward", sum.backward / n},
                      {"communication_wait", sum.communication / n},
                      {"optimizer", sum.optimizer / n}};
  return result;
}

void print_row(const Point& point, std::int64_t repeat, const Json& result) {
  std::string name;
  for (const std::string& item : point) name += item + " ";
  const auto& phases = result["phases"];
  std::cout << fmt::format("{:<40} {:>3} {:>10.2f} {:>10.1f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.0f}\n",
                           name.empty() ? "-" : name, repeat, 1e3 * median(result["step_seconds"]),
                           result["images_per_second"].get<double>(), 1e3 * phases["forward"].get<double>(),
                           1e3 * phases["backward"].get<double>(), 1e3 * phases["communication_wait"].get<double>(),
                           1e3 * phases["optimizer"].get<double>(),
                           static_cast<double>(*std::max_element(result["peak_memory_bytes"].begin(),
                                                                 result["peak_memory_bytes"].end())) /
                               1048576)
            << std::flush;
}

void write_json(const std::string& path, const Json& document) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << document.dump(2) << "\n" << std::flush;
  if (!file) fail("--json: cannot write {}", path);
}

}  // namespace

int bench_command(World& world, const BenchArguments& arguments) {
  Json document{{"program_version", program_version()}};
  Json results = Json::array();
  for (std::int64_t repeat = 0; repeat < arguments.repeat; ++repeat) {
    for (const Point& point : sweep_points(arguments.sweeps)) {
      std::vector<std::string> overrides = arguments.overrides;
      overrides.insert(overrides.end(), point.begin(), point.end());
      const auto run = build_run(world, load_config(world, arguments.config, overrides));
      if (results.empty() && run->is_root()) {
        document["machine"] = {{"host", world.host()},
                               {"nodes", world.node_count()},
                               {"device", run->backend->description()},
                               {"binding", world.binding()},
                               {"mpi", World::mpi_version()}};
        std::cout << run->backend->description() << ", " << world.size() << (world.size() == 1 ? " rank" : " ranks")
                  << "\n"
                  << fmt::format("{:<40} {:>3} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "point", "run",
                                 "step ms", "images/s", "forward", "backward", "comm wait", "optimizer", "peak MiB");
      }
      Json result{{"overrides", Json::object()}, {"ranks", world.size()}, {"repeat", repeat}};
      for (const std::string& item : point)
        result["overrides"][item.substr(0, item.find('='))] = item.substr(item.find('=') + 1);
      result.update(time_steps(*run, arguments));
      if (run->is_root()) print_row(point, repeat, result);
      results.push_back(std::move(result));
    }
  }
  document["results"] = results;
  if (world.rank() == 0) write_json(arguments.json, document);
  return 0;
}

}  // namespace convoy
