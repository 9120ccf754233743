// SPDX-License-Identifier: Apache-2.0
//
// Element-wise and copying kernels of the CPU backend, its memory, and the gradient checker itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/layers/backend/random_data.h"
#include "tests/layers/backend/reference.h"
#include "tests/layers/gradient_check.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

const Shape kImages[] = {{1, 1, 1, 1}, {1, 3, 1, 1}, {2, 3, 5, 7}, {3, 17, 4, 4}, {2, 64, 9, 5}, {5, 8, 70, 61}};

}  // namespace

TEST_CASE("memory is aligned, copied and zeroed") {
  Device device(2);
  for (const std::int64_t count : {1, 17, 1000, 3000000}) {
    Array values = uniform({count}, 1);
    const Tensor tensor = device.put(values);
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64 == 0);
    CHECK(device.get(tensor).values == values.values);
    device.backend.zero(tensor);
    CHECK(device.get(tensor).values == std::vector<double>(values.values.size(), 0.0));
  }
  const auto layout = device.backend.vector_layout(17);
  CHECK(layout->shape() == Shape{17});
  CHECK(layout->elements() == 17);
}

TEST_CASE("zero leaves the neighbours of a view alone") {
  Device device(1);
  Array values({10}, 3.0);
  const Tensor tensor = device.put(values);
  device.backend.zero(tensor.view(4, {2}));
  CHECK(device.get(tensor).values == std::vector<double>{3, 3, 3, 3, 0, 0, 3, 3, 3, 3});
}

TEST_CASE("images are normalised per channel, in the bits of torchvision's order of operations") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const Shape& shape : kImages) {
      Array x = uniform(shape, 2, 0.0, 256.0);
      const Tensor x_tensor = device.put(x, DType::kU8);
      for (const std::int64_t given : {shape[1], std::int64_t{1}}) {  // per channel, or one for all
        Array mean = uniform({given}, 3, 0.3, 0.6), std = uniform({given}, 4, 0.2, 0.3);
        const Tensor mean_tensor = device.put(mean), std_tensor = device.put(std);
        Array expected(shape);
        for (std::int64_t n = 0; n < shape[0]; ++n) {
          for (std::int64_t c = 0; c < shape[1]; ++c) {
            for (std::int64_t h = 0; h < shape[2]; ++h) {
              for (std::int64_t w = 0; w < shape[3]; ++w) {
                const auto k = static_cast<std::size_t>(given == 1 ? 0 : c);
                const float scaled = static_cast<float>(x.at(n, c, h, w)) / 255.0F;
                const float centred = scaled - static_cast<float>(mean.values[k]);
                expected.at(n, c, h, w) = centred / static_cast<float>(std.values[k]);
              }
            }
          }
        }
        const Tensor y = device.spoiled(shape), narrow = device.spoiled(shape, DType::kBF16);
        device.backend.run(ops::NormalizeImages{x_tensor, mean_tensor, std_tensor, y});
        CHECK(device.get(y).values == expected.values);
        device.backend.run(ops::NormalizeImages{x_tensor, mean_tensor, std_tensor, narrow});
        check_close(device.get(narrow), expected, rounding(DType::kBF16), 0.0, shape.str());  // one rounding
      }
    }
  }
}

TEST_CASE("boxes are erased, and images mixed with the one before them, in float32") {
  for (const Shape& given : {Shape{3, 1, 5, 4}, Shape{4, 3, 7, 9}, Shape{2, 2, 1, 1}}) {
    Device device(2);
    RandomData data(device.backend);
    const std::int64_t images = given[0], channels = given[1], height = given[2], width = given[3];
    Array x = uniform(given, 2, 0.0, 256.0), mean = uniform({channels}, 3, 0.3, 0.6),
          std = uniform({channels}, 4, 0.2, 0.3);
    const Tensor x_tensor = device.put(x, DType::kU8), mean_tensor = device.put(mean), std_tensor = device.put(std);
    const Tensor plain = device.spoiled(given);
    device.backend.run(ops::NormalizeImages{x_tensor, mean_tensor, std_tensor, plain});
    const Array normal = device.get(plain);
    const Tensor erased = data.boxes(images, height, width), box_tensor = data.boxes(1, height, width);
    const float weights[2] = {0.3F, 0.7F};
    const Tensor weight_tensor = device.backend.tensor({2}, DType::kF32);
    device.backend.copy_from_host(weights, weight_tensor);
    const auto within = [](const Tensor& boxes, std::int64_t n, std::int64_t h, std::int64_t w) {
      const std::int64_t* box = boxes.data<std::int64_t>() + 4 * n;
      return w >= box[0] && w < box[0] + box[2] && h >= box[1] && h < box[1] + box[3];
    };
    const auto value = [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
      return within(erased, n, h, w) ? 0.0F : static_cast<float>(normal.at(n, c, h, w));
    };
    for (const std::int64_t wide : {channels, std::int64_t{4}}) {
      Array kept({images, wide, height, width}), mixed({images - 1, wide, height, width});
      for (std::int64_t n = 0; n < images; ++n) {
        for (std::int64_t c = 0; c < channels; ++c) {
          for (std::int64_t h = 0; h < height; ++h) {
            for (std::int64_t w = 0; w < width; ++w) {
              kept.at(n, c, h, w) = value(n, c, h, w);
              if (n == 0) continue;
              const float own = weights[0] * value(n, c, h, w), partner = weights[1] * value(n - 1, c, h, w);
              mixed.at(n - 1, c, h, w) = within(box_tensor, 0, h, w) ? own + partner : value(n, c, h, w);
            }
          }
        }
      }
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Tensor y = device.spoiled(kept.shape, dtype), pairs = device.spoiled(mixed.shape, dtype);
        device.backend.run(ops::NormalizeImages{x_tensor, mean_tensor, std_tensor, y, erased});
        device.backend.run(
            ops::NormalizeImages{x_tensor, mean_tensor, std_tensor, pairs, erased, weight_tensor, box_tensor});
        const double once = dtype == DType::kF32 ? 0.0 : rounding(dtype);  // float32: to the bit
        check_close(device.get(y), kept, once, 0.0, given.str());
        check_close(device.get(pairs), mixed, once, 0.0, given.str());
      }
    }
  }
}

TEST_CASE("casts round to nearest even and keep infinities and NaN") {
  Device device(2);
  // Around ties: 1 + 2^-8 lies between two bfloat16 and goes to the even one, 1; 1 + 3 * 2^-8 goes to 1 + 2^-6.
  Array x({10});
  x.values = {1.0,      1.0 + 0x1p-8, 1.0 + 0x1p-8 + 0x1p-20, 1.0 + 3 * 0x1p-8, -0.0, INFINITY, -INFINITY, 3.39e38,
              0x1p-140, NAN};
  const Tensor wide = device.put(x), narrow = device.spoiled({10}, DType::kBF16), back = device.spoiled({10});
  device.backend.run(ops::Cast{wide, narrow});
  device.backend.run(ops::Cast{narrow, back});
  const Array y = device.get(back);
  CHECK(y.values[0] == 1.0);
  CHECK(y.values[1] == 1.0);
  CHECK(y.values[2] == 1.0 + 0x1p-7);
  CHECK(y.values[3] == 1.0 + 0x1p-6);
  CHECK(std::signbit(y.values[4]));
  CHECK(y.values[5] == INFINITY);
  CHECK(y.values[6] == -INFINITY);
  CHECK(std::isfinite(y.values[7]));  // 3.39e38 is just below bfloat16's largest
  CHECK(y.values[8] == 0x1p-133 * 0.0);
  CHECK(std::isnan(y.values[9]));

  Array many = uniform({70001}, 5, -10.0, 10.0);
  const Tensor many_wide = device.put(many), copy = device.spoiled({70001});
  device.backend.run(ops::Cast{many_wide, copy});
  CHECK(device.bytes(copy) == device.bytes(many_wide));
  const Tensor many_narrow = device.spoiled({70001}, DType::kBF16);
  device.backend.run(ops::Cast{many_wide, many_narrow});
  CHECK(device.get(many_narrow).values == rounded(many).values);
}

TEST_CASE("flatten goes to C, H, W order and unflatten back") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const Shape& shape : kImages) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Array x = uniform(shape, 6);
        const Tensor x_tensor = device.put(x, dtype);
        const Tensor y = device.spoiled({shape[0], shape.sample_size()}, dtype), back = device.spoiled(shape, dtype);
        device.backend.run(ops::Flatten{x_tensor, y});
        CHECK(device.get(y).values == x.values);  // the array is in that order
        device.backend.run(ops::Unflatten{y, back});
        CHECK(device.bytes(back) == device.bytes(x_tensor));
      }
    }
  }
}

TEST_CASE("relu, its gradient, add and axpy") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const std::int64_t count : {1, 7, 64, 1000, 100003}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Shape shape{count};
        Array x = uniform(shape, 7), dy = uniform(shape, 8);
        x.values[0] = 0.0;
        const Tensor x_tensor = device.put(x, dtype), dy_tensor = device.put(dy, dtype);
        Array y = x, dx = dy, sum = x;
        for (std::size_t i = 0; i < x.values.size(); ++i) {
          y.values[i] = std::max(0.0, x.values[i]);
          dx.values[i] = x.values[i] > 0.0 ? dy.values[i] : 0.0;
          sum.values[i] += dy.values[i];
        }
        const Tensor y_tensor = device.spoiled(shape, dtype), dx_tensor = device.spoiled(shape, dtype);
        device.backend.run(ops::ReluForward{x_tensor, y_tensor});
        CHECK(device.get(y_tensor).values == y.values);
        device.backend.run(ops::ReluBackward{dy_tensor, y_tensor, dx_tensor});
        CHECK(device.get(dx_tensor).values == dx.values);
        const Tensor scaled = device.spoiled(shape, dtype);
        Array half = x;
        for (double& value : half.values) value *= -0.5;
        device.backend.run(ops::Scale{-0.5F, x_tensor, scaled});
        CHECK(device.get(scaled).values == half.values);
        device.backend.run(ops::Scale{-2.0F, scaled, scaled});
        CHECK(device.get(scaled).values == x.values);
        device.backend.run(ops::Add{dy_tensor, x_tensor});
        check_close(device.get(x_tensor), sum, rounding(dtype), 0.0, "add");    // one rounding
        device.backend.run(ops::ReluBackward{dy_tensor, y_tensor, dy_tensor});  // in place of the one
        CHECK(device.get(dy_tensor).values == dx.values);
        device.backend.run(ops::ReluBackward{dy_tensor, y_tensor, y_tensor});  // and of the other
        CHECK(device.get(y_tensor).values == dx.values);
      }
      Array x = uniform({count}, 9), y = uniform({count}, 10);
      const Tensor x_tensor = device.put(x), y_tensor = device.put(y);
      for (std::size_t i = 0; i < x.values.size(); ++i) y.values[i] += 0.375 * x.values[i];
      device.backend.run(ops::Axpy{0.375F, x_tensor, y_tensor});
      // The product is rounded (6e-8 of 0.375), or is not where there is a fused instruction; then the sum.
      check_close(device.get(y_tensor), y, rounding(DType::kF32), 3e-8, "axpy");
    }
  }
}

TEST_CASE("relu lets NaN through") {
  Device device(1);
  Array x({9}, NAN);
  const Tensor tensor = device.put(x);
  device.backend.run(ops::ReluForward{tensor, tensor});
  for (const double value : device.get(tensor).values) CHECK(std::isnan(value));
}

TEST_CASE("the gradient checker skips kinks and finds wrong gradients") {
  std::vector<float> x{-1.0F, -0.5F, 0.0F, 0.25F, 2.0F, 1e-5F};
  const auto value = [&] {  // sum of max(0, x)^2 + 3 max(0, x): a kink at 0 only
    double sum = 0.0;
    for (const float v : x) sum += v > 0.0F ? (3.0 + static_cast<double>(v)) * static_cast<double>(v) : 0.0;
    return sum;
  };
  std::vector<float> gradient;
  for (const float v : x) gradient.push_back(v > 0.0F ? 3.0F + 2.0F * v : 0.0F);
  // A quadratic's central difference is exact but for rounding in double, divided by the step: 1e-15 / 1e-3.
  const GradientReport good = compare_gradient(x, gradient, value);
  CHECK(good.skipped == 2);
  CHECK(good.checked == 4);
  CHECK(good.worst < 1e-6);
  CHECK(x[4] == 2.0F);
  gradient[3] *= 1.01F;
  const GradientReport bad = compare_gradient(x, gradient, value);
  CHECK(bad.worst_entry == 3);
  CHECK(bad.worst == doctest::Approx(0.01).epsilon(0.2));  // relative to the entry or to the typical gradient
  gradient[3] = NAN;
  CHECK(compare_gradient(x, gradient, value).worst == INFINITY);
}
