// SPDX-License-Identifier: Apache-2.0
//
// Average pooling: the means of windows with zeros around the image, in float64, and its gradient, which is linear: the
// transpose of the same sums.
#include <doctest/doctest.h>

#include <cstdint>

#include "tests/layers/backend/every_operation.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

const PoolSpec kSpecs[] = {{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {2, 3, 1}, {1, 1, 0}, {5, 2, 2}, {{3, 2}, {1, 2}, {1, 0}}};
const Shape kShapes[] = {{1, 1, 1, 1}, {2, 17, 9, 7}, {3, 8, 16, 5}, {1, 300, 11, 11}};

const RegisterCalls registered([](Backend& backend, std::int64_t batch, std::int64_t channels) {
  const Shape shape{batch, channels, 11, 9};
  for (const PoolSpec& spec :
       {PoolSpec{3, 2, 1}, PoolSpec{2, 2, 0}, PoolSpec{5, 3, 2}, PoolSpec{{1, 3}, {1, 2}, {0, 1}}}) {
    RandomData data(backend);
    const Shape output = spec.output_shape(shape);
    backend.run(ops::AvgPoolForward{spec, data.activations(shape, 0, 1), data.output(output)});
    backend.run(ops::AvgPoolBackward{spec, data.activations(output, 0, 1), data.output(shape)});
  }
});

// Calls body(output, input) for each pair of an output and an input in its window, as indices of one image and channel.
template <class Body>
void for_each_pair(const PoolSpec& spec, const Shape& x, Body&& body) {
  const Shape y = spec.output_shape(x);
  for (std::int64_t i = 0; i < y[2]; ++i) {
    for (std::int64_t j = 0; j < y[3]; ++j) {
      for (std::int64_t h = 0; h < spec.kernel.height; ++h) {
        for (std::int64_t w = 0; w < spec.kernel.width; ++w) {
          const std::int64_t row = i * spec.stride.height - spec.padding.height + h;
          const std::int64_t column = j * spec.stride.width - spec.padding.width + w;
          if (row >= 0 && row < x[2] && column >= 0 && column < x[3]) body(i, j, row, column);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("average pooling and its gradient agree with sums in float64") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const PoolSpec& spec : kSpecs) {
      for (const Shape& shape : kShapes) {
        if (!spec.fits(shape)) continue;
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          CAPTURE(shape.str());
          CAPTURE(spec.kernel.str());
          const Shape out = spec.output_shape(shape);
          Array x = uniform(shape, 1), dy = uniform(out, 2), y(out, 0.0), dx(shape, 0.0);
          const Tensor x_tensor = device.put(x, dtype), dy_tensor = device.put(dy, dtype);
          const auto size = static_cast<double>(spec.kernel.height * spec.kernel.width);
          for (std::int64_t n = 0; n < shape[0]; ++n) {
            for (std::int64_t c = 0; c < shape[1]; ++c) {
              for_each_pair(spec, shape, [&](auto i, auto j, auto row, auto column) {
                y.at(n, c, i, j) += x.at(n, c, row, column) / size;
                dx.at(n, c, row, column) += dy.at(n, c, i, j) / size;
              });
            }
          }
          const Tensor y_tensor = device.spoiled(out, dtype), dx_tensor = device.spoiled(shape, dtype);
          device.backend.run(ops::AvgPoolForward{spec, x_tensor, y_tensor});
          device.backend.run(ops::AvgPoolBackward{spec, dy_tensor, dx_tensor});
          // At most 25 float32 additions of values below 1, then one rounding.
          check_close(device.get(y_tensor), y, 1.01 * rounding(dtype), 3e-6, "y");
          check_close(device.get(dx_tensor), dx, 1.01 * rounding(dtype), 3e-6, "dx");
        }
      }
    }
  }
}
