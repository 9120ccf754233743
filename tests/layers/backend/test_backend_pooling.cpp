// SPDX-License-Identifier: Apache-2.0
//
// Pooling of the CPU backend against the float64 reference.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "layers/base/error.h"
#include "tests/layers/backend/reference.h"
#include "tests/layers/gradient_check.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

// kernel, stride, padding: halving, ResNet's stem, overlapping, gaps between windows, the largest kernel, rectangles.
const PoolSpec kSpecs[] = {{2, 2, 0},
                           {3, 2, 1},
                           {3, 1, 1},
                           {2, 3, 1},
                           {1, 1, 0},
                           {5, 2, 2},
                           {15, 4, 7},
                           {{3, 2}, {1, 2}, {1, 0}},
                           {{1, 4}, {2, 3}, {0, 2}}};
const Shape kShapes[] = {{1, 1, 1, 1}, {1, 3, 8, 8}, {2, 17, 9, 7}, {3, 8, 16, 5}, {2, 64, 14, 15}, {1, 300, 11, 11}};

struct Result {
  Tensor y, argmax;
};

Result run(Device& device, const PoolSpec& spec, const Tensor& x, const Shape& out) {
  Result result{device.spoiled(out, x.dtype()), device.spoiled(out, DType::kU8)};
  device.backend.run(ops::MaxPoolForward{spec, x, result.y, result.argmax});
  return result;
}

}  // namespace

TEST_CASE("max pooling agrees with the reference, value by value") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const PoolSpec& spec : kSpecs) {
      for (const Shape& shape : kShapes) {
        if (!spec.fits(shape)) continue;
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          CAPTURE(shape.str());
          CAPTURE(spec.kernel.str());
          Array x = uniform(shape, 1);
          for (double& value : x.values) value = std::round(value * 8.0) / 8.0;  // many ties
          const Tensor x_tensor = device.put(x, dtype);
          const Pooled expected = reference::max_pool(spec, x);
          const Result result = run(device, spec, x_tensor, expected.y.shape);
          CHECK(device.get(result.y).values == expected.y.values);
          CHECK(device.get(result.argmax).values == expected.argmax.values);

          Array dy = uniform(expected.y.shape, 2);
          const Tensor dy_tensor = device.put(dy, dtype), dx = device.spoiled(shape, dtype);
          device.backend.run(ops::MaxPoolBackward{spec, dy_tensor, result.argmax, dx});
          // A pixel adds up to 225 gradients below 1 in float32 and is rounded once: 225 additions of up to 225.
          check_close(device.get(dx), reference::max_pool_backward(spec, dy, expected.argmax, shape),
                      1.01 * rounding(dtype), 2e-5, "dx");
          const auto bytes = device.bytes(dx);
          device.backend.run(ops::MaxPoolBackward{spec, dy_tensor, result.argmax, dx});
          CHECK(device.bytes(dx) == bytes);
        }
      }
    }
  }
}

TEST_CASE("max pooling: NaN wins, padding never does") {
  Device device(1);
  Array x({1, 2, 4, 4}, -std::numeric_limits<double>::infinity());
  x.at(0, 1, 1, 1) = NAN;
  x.at(0, 1, 2, 2) = 7.0;
  const Tensor x_tensor = device.put(x);
  const PoolSpec spec{3, 2, 1};
  const Pooled expected = reference::max_pool(spec, x);
  const Result result = run(device, spec, x_tensor, expected.y.shape);
  check_close(device.get(result.y), expected.y, 0.0, 1e-300, "y");
  CHECK(device.get(result.argmax).values == expected.argmax.values);
  CHECK(device.get(result.argmax).values[0] == 4.0);  // the first place inside the image
  CHECK(std::isnan(device.get(result.y).at(0, 1, 0, 0)));
  CHECK(device.get(result.y).at(0, 0, 1, 1) == -std::numeric_limits<double>::infinity());
}

TEST_CASE("max pooling's gradient agrees with finite differences of the reference") {
  Device device(2);
  const PoolSpec spec{3, 2, 1};
  Array x = uniform({2, 3, 7, 6}, 3);
  const Tensor x_tensor = device.put(x);
  const Shape out = reference::max_pool(spec, x).y.shape;
  Array dy = uniform(out, 4);
  const Tensor dy_tensor = device.put(dy), dx = device.spoiled(x.shape);
  const Result result = run(device, spec, x_tensor, out);
  device.backend.run(ops::MaxPoolBackward{spec, dy_tensor, result.argmax, dx});
  std::vector<float> buffer(x.values.begin(), x.values.end());
  const Array g = device.get(dx);
  const std::vector<float> analytic(g.values.begin(), g.values.end());
  const auto value = [&] {
    x.values.assign(buffer.begin(), buffer.end());
    const Array y = reference::max_pool(spec, x).y;
    double sum = 0.0;
    for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * dy.values[i];
    return sum;
  };
  // Piecewise linear: away from kinks (values within the step of each other, rare) only rounding is left.
  check_gradient("max pool", buffer, analytic, value, {.step = 1e-4, .tolerance = 1e-6, .kink = 1e-3});
}

TEST_CASE("max pooling refuses windows it cannot record") {
  Device device(1);
  Array x({1, 1, 16, 16});
  const Tensor x_tensor = device.put(x);
  CHECK_THROWS_AS(run(device, {16, 1, 0}, x_tensor, {1, 1, 1, 1}), Error);
  CHECK_THROWS_AS(run(device, {2, 1, 2}, x_tensor, {1, 1, 19, 19}), Error);
}

TEST_CASE("global average pooling and its gradient") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{1, 3, 7, 7}, Shape{4, 17, 5, 3}, Shape{3, 64, 8, 8},
                               Shape{2, 2048, 7, 7}, Shape{2, 3, 100, 90}}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Array x = uniform(shape, 5, 0.0, 1.0);
        const Tensor x_tensor = device.put(x, dtype), y = device.spoiled({shape[0], shape[1]}, dtype);
        device.backend.run(ops::GlobalAvgPoolForward{x_tensor, y});
        // Positive terms: height + width additions of half a unit each, 190 * 6e-8 at the largest, if all one way;
        // far less as they fall both ways. Then the rounding of the result.
        check_close(device.get(y), reference::global_avg_pool(x), 1.01 * rounding(dtype) + 2e-6, 0.0, shape.str());

        Array dy = uniform({shape[0], shape[1]}, 6), expected(shape);
        const Tensor dy_tensor = device.put(dy, dtype), dx = device.spoiled(shape, dtype);
        const double pixels = static_cast<double>(shape[2] * shape[3]);
        for (std::int64_t n = 0; n < shape[0]; ++n) {
          for (std::int64_t c = 0; c < shape[1]; ++c) {
            for (std::int64_t h = 0; h < shape[2]; ++h) {
              for (std::int64_t w = 0; w < shape[3]; ++w) expected.at(n, c, h, w) = dy.at(n, c) / pixels;
            }
          }
        }
        device.backend.run(ops::GlobalAvgPoolBackward{dy_tensor, dx});
        // 1 / pixels is rounded, the product is rounded, the result is.
        check_close(device.get(dx), expected, 1.01 * rounding(dtype) + 1.2e-7, 0.0, shape.str());
      }
    }
  }
}
