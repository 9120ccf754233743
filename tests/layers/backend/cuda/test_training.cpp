// SPDX-License-Identifier: Apache-2.0
//
// Networks in training on the GPU: beside the CPU, twice the same, and without taking memory after the first step.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "tests/layers/backend/cuda/gpu.h"
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
