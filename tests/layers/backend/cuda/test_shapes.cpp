// SPDX-License-Identifier: Apache-2.0
//
// Shapes that change how kernels move data or share it out, beside those of test_operations.cpp: activations that begin
// at any element, empty batches, rows and tiles in several parts, and those of a small network in training.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>

#include "layers/models/models.h"
#include "tests/layers/backend/cuda/gpu.h"
#include "tests/layers/backend/every_operation.h"
#include "tests/layers/training.h"

using namespace convoy;

namespace {

/// Every kernel of activations, whose tensors all begin `first` elements into their memory.
void call_on_activations(Backend& backend, std::int64_t first, const Shape& shape) {
  constexpr float kEpsilon = 1e-5F;
  RandomData data(backend);
  const auto floats = [&](const Shape& s, double low = -1, double high = 1) { return data.floats(s, low, high); };
  const auto in = [&](const Shape& s) { return data.activations({s.size() + first}).view(first, s); };
  const auto out = [&](const Shape& s) { return data.output({s.size() + first}).view(first, s); };
  const Shape channels{shape[1]}, rows{shape[0] * shape.pixels()}, flat{shape[0], shape.sample_size()},
      pooled{shape[0], shape[1]};
  const Tensor x = in(shape), dy = in(shape), y = out(shape);
  const Tensor gamma = floats(channels, 0.5, 1.5), beta = floats(channels);

  const Tensor mean = floats(channels), variance = floats(channels, 0.5, 1);
  const auto count = static_cast<double>(rows.size());
  backend.run(ops::BatchNormStatistics{x, data.output_f32(channels), data.output_f32(channels)});
  backend.run(ops::BatchNormApply{x, mean, variance, gamma, beta, kEpsilon, dy, true, y});
  const Tensor dgamma = data.output_f32(channels), dbeta = data.output_f32(channels);
  backend.run(ops::BatchNormBackwardReduce{dy, x, y, mean, variance, gamma, beta, kEpsilon, false, dgamma, dbeta, false,
                                           out(shape)});
  backend.run(ops::BatchNormBackwardApply{dy, x, y, mean, variance, gamma, beta, beta, beta, count, kEpsilon, false,
                                          out(shape)});
  backend.run(ops::BatchNormBackwardResidual{dy, y, in(shape)});

  const Tensor row_mean = data.output_f32(rows), inverse_std = data.output_f32(rows);
  backend.run(ops::LayerNormForward{x, gamma, beta, kEpsilon, y, row_mean, inverse_std});
  backend.run(ops::LayerNormBackwardInput{dy, x, gamma, row_mean, inverse_std, out(shape)});
  backend.run(ops::LayerNormBackwardWeight{dy, x, row_mean, inverse_std, dgamma, dbeta, false});

  for (const PoolSpec& spec : {PoolSpec{3, 2, 1}, PoolSpec{2, 1}}) {
    const Shape smaller = spec.output_shape(shape);
    const Tensor argmax = backend.tensor({smaller.size() + first}, DType::kU8).view(first, smaller);
    backend.run(ops::MaxPoolForward{spec, x, out(smaller), argmax});
    backend.run(ops::MaxPoolBackward{spec, in(smaller), argmax, out(shape)});
    backend.run(ops::AvgPoolForward{spec, x, out(smaller)});
    backend.run(ops::AvgPoolBackward{spec, in(smaller), out(shape)});
  }
  backend.run(ops::GlobalAvgPoolForward{x, out(pooled)});
  backend.run(ops::GlobalAvgPoolBackward{in(pooled), out(shape)});
  backend.run(ops::Flatten{x, out(flat)});
  backend.run(ops::Unflatten{in(flat), out(shape)});
  backend.run(ops::NormalizeImages{data.images({shape.size() + first}).view(first, shape), beta, gamma, out(shape)});

  backend.run(ops::ReluForward{x, y});
  backend.run(ops::ReluBackward{dy, y, out(shape)});
  backend.run(ops::ActivationForward{ActivationFunction::kSilu, x, out(shape)});
  backend.run(ops::ActivationBackward{ActivationFunction::kSilu, dy, x, out(shape)});
  backend.run(ops::Add{x, y});
  const Tensor wide = floats({shape.size() + first}).view(first, shape);
  backend.run(ops::Cast{x, wide});
  backend.run(ops::Cast{wide, y});
  const Tensor position = data.labels(2, 100);
  backend.run(ops::Dropout{x, position, 5, 0.4, out(shape)});

  const Tensor labels = data.labels(shape[0], flat[1]);
  backend.run(ops::SoftmaxCrossEntropy{in(flat), labels, ops::none(), 0.1F, 0.5F, out(flat), data.totals()});
  backend.run(ops::PointwiseLoss{in(flat), floats(flat), ops::none(), 0.5F, out(flat), data.totals()});
}

}  // namespace

TEST_CASE("activations that begin at any element agree with the CPU's") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    for (const std::int64_t first : {0, 1, 3, 4, 8}) {
      for (const Shape& shape : {Shape{3, 8, 5, 7}, Shape{2, 24, 4, 4}, Shape{3, 5, 7, 6}}) {
        attempt(fmt::format("{}, {} from element {}", precision.name, shape.str(), first),
                [&] { call_on_activations(backends.backend, first, shape); });
      }
    }
  });
}

TEST_CASE("empty batches are taken") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    const Shape nothing{0, 8, 5, 7};
    attempt(precision.name, [&] { call_on_activations(backends.backend, 0, nothing); });
    attempt(precision.name, [&] { call_conv2d(backends.backend, {8, 5, 3, 1, 1}, nothing, true); });
    attempt(precision.name, [&] { call_linear(backends.backend, 0, 8, 5, true); });
  });
}

TEST_CASE("rows, channels and tiles in several parts agree with the CPU's") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    Backend& backend = backends.backend;
    // Many rows: slices of them. Many channels: blocks side by side. Both: more than the 32 rows that a thread sums
    // first.
    for (const Shape& shape : {Shape{1, 3, 47, 43}, Shape{8, 16, 31, 9}, Shape{5, 2056, 1, 1}, Shape{2, 519, 13, 11}}) {
      attempt(precision.name, [&] { call_on_activations(backend, 0, shape); });
    }
    attempt(precision.name, [&] { call_losses(backend, 2, 5000); });
    attempt(precision.name, [&] { call_losses(backend, 300, 2); });
    attempt(precision.name, [&] { call_updates(backend, 150'001); });
  });
}

TEST_CASE("a step of a small network agrees with the CPU's in every operation") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    for (const OptimizerChoice& optimizer :
         {OptimizerChoice(SgdOptions{}), OptimizerChoice(LarsOptions{}), OptimizerChoice(AdamwOptions{})}) {
      attempt(fmt::format("{}, {}", precision.name, choice_name(optimizer)), [&] {
        Training training(backends.backend,
                          sequential_model({{"conv", Conv2dOptions{.out_channels = 8, .kernel_size = 3, .padding = 1}},
                                            {"relu", ReluOptions{}},
                                            {"pool", MaxPool2dOptions{.kernel_size = 3, .stride = 2, .padding = 1}},
                                            {"strided", BasicBlockOptions{.channels = 20, .stride = 2}},
                                            {"plain", BasicBlockOptions{.channels = 20, .stride = 1}},
                                            {"average", GlobalAvgPoolOptions{}},
                                            {"norm", LayerNormOptions{}},
                                            {"gelu", GeluOptions{}},
                                            {"fc", LinearOptions{.out_features = 10}}}),
                          {3, 3, 17, 13}, optimizer, precision.loss_scale);
        training.load(1);
        training.step(1e-3);
        CHECK(backends.backend.seen().at("conv2d_forward").calls >= 6);
      });
    }
  });
}
