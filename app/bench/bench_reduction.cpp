// SPDX-License-Identifier: Apache-2.0
#include "app/bench/bench_reduction.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <vector>

#include "layers/base/clock.h"
#include "layers/base/median.h"

namespace convoy {

namespace {

constexpr int kWarmupRuns = 2;
constexpr int kRounds = 9;

double median_seconds(Communicator& all, const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int i = 0; i < kWarmupRuns + kRounds; ++i) {
    all.barrier("before a timed operation");
    const auto start = std::chrono::steady_clock::now();
    body();
    all.barrier("after a timed operation");
    if (i >= kWarmupRuns) seconds.push_back(seconds_since(start));
  }
  return median(seconds);
}

}  // namespace

ReductionSpeed time_reduction(Run& run, double step_wait) {
  const Tensor& gradients = run.model->parameters().gradients();
  Backend& backend = *run.backend;
  backend.zero(gradients);
  ReductionSpeed speed;
  speed.bytes = static_cast<std::int64_t>(gradients.bytes());
  speed.seconds = median_seconds(*run.communicator, [&] {
    run.replicas->all_reduce(gradients, ReduceOp::kSum, "gradients alone")->wait();
    backend.synchronize();
  });
  const Tensor copy = backend.tensor(gradients.shape(), gradients.dtype());
  speed.copy_seconds = median_seconds(*run.communicator, [&] {
    backend.run(ops::Cast{gradients, copy});
    backend.synchronize();
  });
  const double replicas = run.layout.mesh.replicas();
  speed.bus_bytes_per_second = 2 * (replicas - 1) / replicas * static_cast<double>(speed.bytes) / speed.seconds;
  // The rank that waits least is the slowest: the others wait for it, too.
  std::array<double, 1> least{step_wait};
  run.communicator->all_reduce(least, ReduceOp::kMin, "least wait");
  if (run.layout.mesh.stages() == 1) speed.hidden = std::clamp(1 - least[0] / speed.seconds, 0.0, 1.0);
  return speed;
}

}  // namespace convoy
