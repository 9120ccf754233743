// SPDX-License-Identifier: Apache-2.0
//
// Networks in training on the GPU: beside the CPU, twice the same, and without taking memory after the first step.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/layers/backend/cuda/gpu.h"
#include "tests/layers/fused_network.h"
#include "tests/layers/training.h"

using namespace convoy;

TEST_CASE("ResNet-50, forward and backward, agrees with the CPU in every operation") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    attempt(precision.name, [&] {
      Training training(backends.backend, residual_network(50, Stem::kImagenet, 10), image_shape(4, 96), {},
                        precision.loss_scale);
      training.load(1);
      training.forward_backward();
      CHECK(std::isfinite(training.loss()));
      CHECK(backends.backend.seen().at("conv2d_forward").calls == (kOnHost ? 4 : 53));
    });
  });
}

// At this learning rate differences of 1e-6 in the first convolutions of a ResNet grow to 1e-4 of the loss; at a
// hundred times it they would grow beyond 1e-3.
TEST_CASE("a ResNet-18 learns on the GPU what it learns on the CPU") {
  const Shape input = image_shape(32, 16);
  CudaBackend gpu{CudaOptions{}};
  OnednnBackend cpu(cpu_threads(), DType::kF32);
  Training on_gpu(gpu, residual_network(18, Stem::kSmall, 10), input);
  Training on_cpu(cpu, residual_network(18, Stem::kSmall, 10), input);
  const double lr = kOnHost ? 0.02 : 1e-4;
  double first = 0, last = 0;
  for (std::uint64_t step = 0; step < 20; ++step) {
    for (Training* training : {&on_gpu, &on_cpu}) {
      training->load(step % 2);
      training->step(lr);
    }
    last = on_cpu.loss();
    if (step == 0) first = last;
    CHECK_MESSAGE(std::abs(on_gpu.loss() - last) <= 1e-3 * std::max(1.0, last),
                  fmt::format("step {}: {} on the GPU, {} on the CPU", step, on_gpu.loss(), last));
  }
  CHECK(last < 0.8 * first);
}

TEST_CASE("a network with every fusion agrees with the CPU in every operation") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    attempt(precision.name, [&] {
      Training training(backends.backend, fused_network(10), {6, 3, 20, 16}, {}, precision.loss_scale);
      for (std::uint64_t step = 0; step < 2; ++step) {
        training.load(step);
        training.step(0.01);
        CHECK(std::isfinite(training.loss()));
      }
    });
  });
}

namespace {

// |a - b| / |b|, Euclidean.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double gaps = 0, squares = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    gaps += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    squares += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(gaps / squares);
}

}  // namespace

TEST_CASE("fused batch norms give gradients as near to float32's as those that run apart") {
  const Shape input{8, 3, 24, 24};
  const auto train = [&](Backend& backend, bool recomputes = false) {
    std::vector<Unit> units = fused_network(10);
    if (recomputes) recompute_blocks(units);
    auto training = std::make_unique<Training>(backend, std::move(units), input, OptimizerChoice{}, 64);
    for (const std::uint64_t key : {3, 4}) {
      training->load(key);
      training->step(1e-4);
    }
    return training;
  };
  OnednnBackend cpu(cpu_threads(), DType::kF32);
  const auto expected = train(cpu);
  for (const DType compute : {DType::kBF16, DType::kF16}) {
    attempt(dtype_name(compute), [&] {
      CudaOptions options;
      options.compute = compute;
      options.time_plans = false;
      CudaBackend fused_backend(options);
      options.deterministic = true;
      CudaBackend apart_backend(options);
      CHECK(fused_backend.fuses_batch_norms());
      CHECK_FALSE(apart_backend.fuses_batch_norms());
      const auto fused = train(fused_backend), apart = train(apart_backend), recomputed = train(fused_backend, true);
      // Rounding turns ReLUs of values near zero on and off, which is where most of these distances come from: they
      // fall with the square root of the precision, and differ by chance. A gradient that is missing or counted twice
      // is as far away as it is long.
      const auto check = [&](const std::string& what, const std::vector<float>& own, const std::vector<float>& other,
                             const std::vector<float>& right, double factor, double bound) {
        CHECK_MESSAGE(distance(own, right) <= factor * distance(other, right) + bound,
                      fmt::format("{}, {}: {:.4f} fused, {:.4f} apart", dtype_name(compute), what, distance(own, right),
                                  distance(other, right)));
      };
      const auto running = [](Training& training) { return training.on_host(training.model().parameters().running()); };
      check("running statistics", running(*fused), running(*apart), running(*expected), 1.5, 0.02);
      std::vector<float> all[4];
      for (std::size_t i = 0; i < expected->model().parameters().parameters().size(); ++i) {
        const auto gradient = [&](Training& training, std::vector<float>& together) {
          const Parameter& parameter = *training.model().parameters().parameters()[i];
          std::vector<float> values(static_cast<std::size_t>(parameter.layout->shape().size()));
          training.model().backend().export_weight(*parameter.layout, parameter.gradient, values.data());
          together.insert(together.end(), values.begin(), values.end());
          return values;
        };
        // Sums over a batch of small images that nearly cancel are the furthest away.
        check(expected->model().parameters().parameters()[i]->name, gradient(*fused, all[0]), gradient(*apart, all[1]),
              gradient(*expected, all[2]), 3, 0.1);
        static_cast<void>(gradient(*recomputed, all[3]));
      }
      check("all gradients", all[0], all[1], all[2], 1.5, 0.02);
      // Between recomputed blocks reductions run by themselves, over gradients that are rounded.
      check("running statistics, recomputed", running(*recomputed), running(*apart), running(*expected), 1.5, 0.02);
      check("all gradients, recomputed", all[3], all[1], all[2], 1.5, 0.02);
    });
  }
}

TEST_CASE("recomputed blocks give the bits of those that keep their activations, recorded, too") {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    attempt(dtype_name(compute), [&] {
      CudaOptions options = deterministic_options();
      options.compute = compute;
      const auto train = [&](bool recomputes, bool records) {
        CudaBackend gpu(options);
        std::vector<Unit> units = fused_network(10);
        if (recomputes) recompute_blocks(units);
        Training training(gpu, std::move(units), {4, 3, 16, 16});
        std::unique_ptr<RecordedWork> work;
        for (std::uint64_t step = 0; step < 3; ++step) {
          training.load(step);
          if (records && step == 1) work = gpu.record([&] { training.step(0.01); });
          work ? work->replay() : training.step(0.01);
        }
        CHECK((work != nullptr) == records);
        return training.state();
      };
      const auto expected = train(false, false);
      CHECK(train(true, false) == expected);
      CHECK(train(true, true) == expected);
    });
  }
}

TEST_CASE("in the deterministic mode two runs give the same bits") {
  const auto train = [] {
    CudaBackend gpu(deterministic_options());
    Training training(gpu, residual_network(50, Stem::kImagenet, 10), image_shape(8, 64));
    for (std::uint64_t step = 0; step < 3; ++step) {
      training.load(step);
      training.step(0.05);
    }
    return training.state();
  };
  CHECK(train() == train());
}

TEST_CASE("a step repeated on the same backend gives the same bits") {
  for (const DType compute : {DType::kF32, DType::kBF16, DType::kF16}) {
    CudaOptions options = deterministic_options();
    options.compute = compute;
    attempt(dtype_name(compute), [&] {
      CudaBackend gpu(options);
      Training training(gpu, residual_network(18, Stem::kSmall, 10), image_shape(16, 16));
      training.load(1);
      training.forward_backward();
      const double loss = training.loss();
      const auto gradients = training.on_host(training.model().parameters().gradients());
      for (int again = 0; again < 3; ++again) {
        training.forward_backward();
        CHECK(training.loss() == loss);
        CHECK(training.on_host(training.model().parameters().gradients()) == gradients);
      }
    });
  }
}

TEST_CASE("a steady step takes no device memory") {
  for (const Precision& precision : kPrecisions) {
    attempt(precision.name, [&] {
      CudaBackend gpu(cuda_options(precision));
      Training training(gpu, residual_network(50, Stem::kImagenet, 10), image_shape(4, 64));
      std::uint64_t allocations = 0;
      std::size_t bytes = 0;
      for (std::uint64_t step = 0; step < 4; ++step) {
        training.load(step);
        training.step(0.01);
        training.loss();
        if (step == 0) {
          allocations = gpu.pool().raw_allocations();
          bytes = gpu.pool().bytes_held();
        }
      }
      CHECK(allocations > 0);
      CHECK(gpu.pool().raw_allocations() == allocations);
      CHECK(gpu.pool().bytes_held() == bytes);
    });
  }
}
