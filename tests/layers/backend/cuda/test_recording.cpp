// SPDX-License-Identifier: Apache-2.0
//
// Recorded steps of the CUDA backend: a replay does what running the step would, to the bit, whatever happens between.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/layers/backend/cuda/gpu.h"
#include "tests/layers/backend/every_operation.h"
#include "tests/layers/fused_network.h"
#include "tests/layers/training.h"

using namespace convoy;

namespace {

using State = std::vector<std::vector<float>>;

constexpr std::uint64_t kSteps = 6;
constexpr double kLr = 0.01;
const Shape kInput = image_shape(8, 32);

std::vector<Unit> network() { return residual_network(18, Stem::kImagenet, 10); }

constexpr double kDecay = 1e-4;

/// kSteps steps, each on its own data, none recorded.
State run_plainly(const OptimizerChoice& optimizer) {
  CudaBackend gpu(deterministic_options());
  Training training(gpu, network(), kInput, optimizer);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    training.load(step);
    training.step(kLr);
  }
  return training.state();
}

/// The same, the first plainly and the others as replays, with between(backend) before each of these.
State run_recorded(const OptimizerChoice& optimizer, const std::function<void(CudaBackend&)>& between) {
  CudaBackend gpu(deterministic_options());
  Training training(gpu, network(), kInput, optimizer);
  training.load(0);
  training.step(kLr);
  const State before = training.state();
  const std::unique_ptr<RecordedWork> work = gpu.record([&] { training.step(kLr); });
  REQUIRE(work != nullptr);
  CHECK(training.state() == before);  // recording carries nothing out
  for (std::uint64_t step = 1; step < kSteps; ++step) {
    between(gpu);
    training.load(step);
    work->replay();
  }
  return training.state();
}

}  // namespace

TEST_CASE("replays of a recorded step give the bits of the step itself") {
  for (const OptimizerChoice& optimizer :
       {OptimizerChoice(SgdOptions{.weight_decay = kDecay}), OptimizerChoice(LarsOptions{.weight_decay = kDecay}),
        OptimizerChoice(AdamwOptions{.weight_decay = kDecay})}) {
    CAPTURE(choice_name(optimizer));
    attempt("optimizer", [&] { CHECK(run_recorded(optimizer, [](CudaBackend&) {}) == run_plainly(optimizer)); });
  }
}

TEST_CASE("replays do not mind other operations and waits between them") {
  const OptimizerChoice optimizer = SgdOptions{.weight_decay = kDecay};
  const auto between = [](CudaBackend& gpu) {
    call_conv2d(gpu, {64, 64, 3, 1, 1}, {8, 64, 8, 8}, false);
    call_batch_norm(gpu, {8, 64, 16, 16});
    call_losses(gpu, 8, 10);
    gpu.synchronize();
    call_elementwise(gpu, 100003);
  };
  CHECK(run_recorded(optimizer, between) == run_plainly(optimizer));
}

TEST_CASE("what a replay writes in passing is handed to nobody else") {
  CudaBackend gpu(deterministic_options());
  Training training(gpu, network(), kInput);
  training.load(0);
  training.step(kLr);
  const std::unique_ptr<RecordedWork> work = gpu.record([&] { training.step(kLr); });
  REQUIRE(work != nullptr);
  // Tensors of all the sizes that the step asks for: more of each than it had at any time.
  std::vector<Shape> shapes{kInput, Shape{64}, Shape{512}, Shape{3}};
  for (const UnitInfo& unit : training.model().units()) shapes.push_back(unit.output);
  std::vector<Tensor> others;
  std::vector<std::vector<float>> expected;
  float value = 1;
  for (const Shape& shape : shapes) {
    for (int i = 0; i < 20; ++i) {
      expected.emplace_back(static_cast<std::size_t>(shape.size()), value++);
      others.push_back(gpu.tensor(shape, DType::kF32));
      gpu.copy_from_host(expected.back().data(), others.back());
    }
  }
  for (int step = 0; step < 3; ++step) work->replay();
  int damaged = 0;
  for (std::size_t i = 0; i < others.size(); ++i) damaged += training.on_host(others[i]) == expected[i] ? 0 : 1;
  CHECK(damaged == 0);
}

TEST_CASE("work of another size can be recorded beside, and recordings end in any order") {
  CudaBackend gpu(deterministic_options());
  Training large(gpu, network(), kInput), small(gpu, network(), kInput.with_batch(2));
  CudaBackend plain_gpu(deterministic_options());
  Training plain_large(plain_gpu, network(), kInput), plain_small(plain_gpu, network(), kInput.with_batch(2));
  std::unique_ptr<RecordedWork> large_work, small_work;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    for (Training* training : {&large, &small, &plain_large, &plain_small}) training->load(step);
    plain_large.step(kLr);
    plain_small.step(kLr);
    if (step == 0) {
      large.step(kLr);
      small.step(kLr);
      large_work = gpu.record([&] { large.step(kLr); });
      small_work = gpu.record([&] { small.step(kLr); });
      REQUIRE(large_work != nullptr);
      REQUIRE(small_work != nullptr);
    } else {
      small_work->replay();
      if (step + 1 < kSteps) {
        large_work->replay();
      } else {
        large_work.reset();
        large.step(kLr);
      }
    }
  }
  CHECK(large.state() == plain_large.state());
  CHECK(small.state() == plain_small.state());
}

TEST_CASE("what waits or copies from the host cannot be recorded, and the backend works on after the attempt") {
  CudaBackend gpu(deterministic_options());
  RandomData data(gpu);
  const Tensor x = data.floats({1000});
  std::vector<float> host(1000);
  CHECK_THROWS_AS(gpu.record([&] { gpu.synchronize(); }), Error);
  CHECK_THROWS_AS(gpu.record([&] { gpu.copy_to_host(x, host.data()); }), Error);
  CHECK_THROWS_AS(gpu.record([&] { gpu.copy_from_host(host.data(), x); }), Error);
  CHECK_THROWS_AS(gpu.record([&] { gpu.all_finite(x); }), Error);
  CHECK(gpu.all_finite(x));
  const std::unique_ptr<RecordedWork> work = gpu.record([&] { gpu.zero(x); });
  REQUIRE(work != nullptr);
  work->replay();
  gpu.copy_to_host(x, host.data());
  CHECK(host == std::vector<float>(1000, 0.0F));
}

TEST_CASE("what a recording that failed has left is never used") {
  CudaOptions options;
  options.compute = DType::kBF16;
  options.time_plans = false;
  CudaBackend gpu(options);
  Training training(gpu, fused_network(10), {4, 3, 16, 16});
  training.load(1);
  training.forward_backward();
  const auto gradients = [&] { return training.on_host(training.model().parameters().gradients()); };
  const std::vector<float> expected = gradients();
  const auto fails_behind = [&](std::int64_t elements) {
    training.model().parameters().begin_step();
    Cache cache = training.model().make_cache();
    const Tensor x = gpu.zeros({4, 3, 16, 16}, DType::kBF16);
    const Tensor y = training.model().forward(x, cache, Mode::kTraining);
    training.model().backward(y, cache, [&](std::int64_t done) {
      if (done >= elements) fail("in the middle of backward");
    });
  };
  for (const std::int64_t elements : {0, 400, 4000}) {
    CHECK_THROWS_AS(gpu.record([&] { fails_behind(elements); }), Error);
    const Tensor zeros = gpu.zeros({1000}, DType::kF32);
    CHECK(training.on_host(zeros) == std::vector<float>(1000, 0.0F));
    training.forward_backward();
    // The order of additions in fused sums may change.
    const std::vector<float> again = gradients();
    double gap = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      gap = std::max(gap, static_cast<double>(std::abs(again[i] - expected[i])));
      size = std::max(size, static_cast<double>(std::abs(expected[i])));
    }
    CHECK(gap <= 1e-2 * size);
  }
}
