// SPDX-License-Identifier: Apache-2.0
//
// Smooth activation functions: closed forms in float64, slopes as the backward has them, ends of the range, NaN.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/layers/backend/every_operation.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

constexpr ActivationFunction kFunctions[] = {ActivationFunction::kTanh, ActivationFunction::kSigmoid,
                                             ActivationFunction::kGelu, ActivationFunction::kSilu};

const RegisterCalls registered([](Backend& backend, std::int64_t batch, std::int64_t channels) {
  for (const ActivationFunction function : kFunctions) {
    for (const Shape& shape : {Shape{batch, channels, 11, 9}, Shape{batch, channels}}) {
      RandomData data(backend);
      const Tensor x = data.activations(shape, -3, 3), dy = data.activations(shape);
      backend.run(ops::ActivationForward{function, x, data.output(shape)});
      backend.run(ops::ActivationBackward{function, dy, x, data.output(shape)});
      backend.run(ops::ActivationBackward{function, dy, x, x});
    }
  }
});

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

double value(ActivationFunction function, double x) {
  switch (function) {
    case ActivationFunction::kTanh: return std::tanh(x);
    case ActivationFunction::kSigmoid: return sigmoid(x);
    case ActivationFunction::kGelu: return x * normal(x);
    case ActivationFunction::kSilu: return x * sigmoid(x);
  }
  return 0;
}

// The central difference of the closed form: its error is far below float32's.
double slope(ActivationFunction function, double x) {
  constexpr double kStep = 1e-5;
  return (value(function, x + kStep) - value(function, x - kStep)) / (2 * kStep);
}

Array inputs(std::int64_t count, double low, double high) {
  Array x({count}, 0.0);
  for (std::int64_t i = 0; i < count; ++i) {
    x.values[static_cast<std::size_t>(i)] =
        low + (high - low) * static_cast<double>(i) / static_cast<double>(count - 1);
  }
  return x;
}

}  // namespace

TEST_CASE("activation functions and their gradients agree with the closed forms") {
  // e^x by a series and erf by a formula are within 2e-7 of 1, and tanh of small arguments within 2e-7 of itself.
  for (const int threads : {1, 2}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Device device(threads, dtype);
      for (const ActivationFunction function : kFunctions) {
        for (Array x : {inputs(40001, -12, 12), inputs(2001, -1e-3, 1e-3)}) {
          CAPTURE(std::string(activation_name(function)));
          const Shape shape = x.shape;
          const Tensor input = device.put(x, dtype), y = device.spoiled(shape, dtype);
          device.backend.run(ops::ActivationForward{function, input, y});
          Array expected(shape), slopes(shape);
          Array dy = uniform(shape, 3);
          const Tensor gradient = device.put(dy, dtype), dx = device.spoiled(shape, dtype);
          for (std::size_t i = 0; i < x.values.size(); ++i) {
            expected.values[i] = value(function, x.values[i]);
            slopes.values[i] = dy.values[i] * slope(function, x.values[i]);
          }
          check_close(device.get(y), expected, 1.01 * rounding(dtype) + 4e-7, 4e-7, "forward");
          device.backend.run(ops::ActivationBackward{function, gradient, input, dx});
          check_close(device.get(dx), slopes, 1.01 * rounding(dtype) + 4e-7, 1e-6, "backward");
          device.backend.run(ops::ActivationBackward{function, gradient, input, input});
          CHECK(device.get(input).values == device.get(dx).values);
        }
      }
    }
  }
}

TEST_CASE("tanh of small arguments keeps its relative accuracy") {
  Device device(1);
  Array x({6}, 0.0);
  x.values = {1e-30, -1e-10, 1e-5, -1e-4, 3e-3, 0.1};
  const Tensor input = device.put(x), y = device.spoiled({6});
  device.backend.run(ops::ActivationForward{ActivationFunction::kTanh, input, y});
  const Array result = device.get(y);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    CHECK(result.values[i] == doctest::Approx(std::tanh(x.values[i])).epsilon(5e-7));
  }
}

TEST_CASE("activation functions at the ends of float32") {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  Device device(1);
  Array x({6}, 0.0);
  x.values = {1e30, -1e30, infinity, -infinity, nan, 200};
  const auto run = [&](ActivationFunction function) {
    const Tensor input = device.put(x), y = device.spoiled({6});
    device.backend.run(ops::ActivationForward{function, input, y});
    return device.get(y).values;
  };
  const auto tanh = run(ActivationFunction::kTanh), sigmoid = run(ActivationFunction::kSigmoid);
  CHECK(std::vector<double>(tanh.begin(), tanh.begin() + 4) == std::vector<double>{1, -1, 1, -1});
  CHECK(sigmoid[0] == 1);
  CHECK(sigmoid[1] <= 1e-37);
  CHECK(sigmoid[2] == 1);
  for (const auto& values : {tanh, sigmoid, run(ActivationFunction::kGelu), run(ActivationFunction::kSilu)}) {
    CHECK(std::isnan(values[4]));
  }
  CHECK(run(ActivationFunction::kGelu)[5] == 200);
  CHECK(run(ActivationFunction::kSilu)[5] == 200);
}
