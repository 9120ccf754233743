// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation of the CPU backend against the float64 reference and against finite differences.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/layers/backend/reference.h"
#include "tests/layers/gradient_check.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

constexpr float kEpsilon = 1e-5F;

// One row, fewer rows than a block, blocks with a rest, enough rows for several threads, wide and narrow; channels of
// whole vectors that are not whole columns of four.
const Shape kShapes[] = {{1, 3, 1, 1},    {5, 1},          {2, 8, 3, 3},    {2, 17, 5, 3}, {1, 64, 7, 9},
                         {4, 64, 23, 19}, {3, 3, 71, 67},  {200, 1},        {37, 2048},    {1, 17, 130, 40},
                         {1, 16, 29, 31}, {3, 48, 41, 11}, {2, 208, 13, 17}};

struct Parameters {
  Array gamma, beta;
  Tensor gamma_tensor, beta_tensor;
  Parameters(Device& device, std::int64_t channels)
      : gamma(uniform({channels}, 11, 0.5, 1.5)), beta(uniform({channels}, 12)) {
    gamma_tensor = device.put(gamma);
    beta_tensor = device.put(beta);
  }
};

struct Statistics {
  Tensor mean, variance;
  Moments values;  // as stored, so that later operations start from the same numbers
};

Statistics statistics(Device& device, const Tensor& x) {
  const Shape channels{x.shape()[1]};
  Statistics s{device.spoiled(channels), device.spoiled(channels), {}};
  device.backend.run(ops::BatchNormStatistics{x, s.mean, s.variance});
  s.values = {device.get(s.mean).values, device.get(s.variance).values};
  return s;
}

Array as_array(const std::vector<double>& values) {
  Array array({static_cast<std::int64_t>(values.size())});
  array.values = values;
  return array;
}

void check_statistics(Device& device, Array x, DType dtype, double spread, const std::string& what) {
  const Tensor tensor = device.put(x, dtype);
  const Moments expected = reference::batch_norm_statistics(x);
  const Statistics actual = statistics(device, tensor);
  // The mean is stored as float32 (6e-8 of it), and the sums of a block err by some 1e-7 of the values' spread.
  check_close(as_array(actual.values.mean), as_array(expected.mean), 1e-7, 1e-6 * spread, what + ", mean");
  // Sums of squares of one block of 32 rows in float: some 1e-7; with one row it is exactly 0.
  check_close(as_array(actual.values.variance), as_array(expected.variance), 1e-6, 1e-13 * spread * spread,
              what + ", variance");
}

}  // namespace

TEST_CASE("batch norm statistics agree with float64") {
  for (const int threads : {1, 2, 3}) {
    Device device(threads);
    for (const Shape& shape : kShapes) {
      const std::string what = fmt::format("{} with {} threads", shape.str(), threads);
      check_statistics(device, uniform(shape, 1), DType::kF32, 1.0, what);
      check_statistics(device, uniform(shape, 2), DType::kBF16, 1.0, what + " in bfloat16");
    }
  }
}

TEST_CASE("batch norm statistics hold when the mean is far above the spread") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const Shape& shape : kShapes) {
      const std::string what = fmt::format("{} with {} threads", shape.str(), threads);
      Array x = uniform(shape, 3, 1000.0 - std::sqrt(3.0), 1000.0 + std::sqrt(3.0));  // standard deviation 1
      check_statistics(device, x, DType::kF32, 1.0, what);
      // An outlier in front, and a level that jumps half-way: neither is a good pivot for the rest.
      x.values.front() = -5000.0;
      check_statistics(device, x, DType::kF32, 6000.0, what + ", outlier");
      for (std::size_t i = 0; i < x.values.size(); ++i)
        x.values[i] = i * 2 < x.values.size() ? 1000.0 : 0.001 * double(i % 7);
      check_statistics(device, x, DType::kF32, 1000.0, what + ", step");
    }
    Array constant({4, 8, 9, 9}, 0.1);
    const Statistics s = statistics(device, device.put(constant));
    // Deviations of a constant from its float32 mean are under 2e-8, and squares of that are what may be left.
    for (const double variance : s.values.variance) CHECK(variance <= 1e-15);
    for (const double mean : s.values.mean) CHECK(mean == static_cast<double>(0.1F));
  }
}

TEST_CASE("batch norm statistics let NaN through and take an empty batch") {
  Device device(2);
  Array x = uniform({4, 3, 5, 5}, 4);
  x.at(2, 1, 3, 3) = NAN;
  const Statistics s = statistics(device, device.put(x));
  CHECK(std::isnan(s.values.mean[1]));
  CHECK(std::isnan(s.values.variance[1]));
  CHECK(std::isfinite(s.values.variance[0]));
  Array nothing({0, 3, 5, 5});
  const Statistics empty = statistics(device, device.put(nothing));
  for (const double variance : empty.values.variance) CHECK(variance == 0.0);
}

TEST_CASE("batch norm apply agrees with float64") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const Shape& shape : kShapes) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Array x = uniform(shape, 5, -2.0, 2.0), residual = uniform(shape, 6);
        const Tensor x_tensor = device.put(x, dtype), residual_tensor = device.put(residual, dtype);
        const Parameters p(device, shape[1]);
        // Fixed moments: those of one row would make 1 / sqrt(epsilon) of every rounding.
        Array mean = uniform({shape[1]}, 7, -0.5, 0.5), variance = uniform({shape[1]}, 8, 0.25, 4.0);
        const Tensor mean_tensor = device.put(mean), variance_tensor = device.put(variance);
        for (const bool add : {false, true}) {
          for (const bool relu : {false, true}) {
            const Tensor y = device.spoiled(shape, dtype);
            device.backend.run(ops::BatchNormApply{x_tensor, mean_tensor, variance_tensor, p.gamma_tensor,
                                                   p.beta_tensor, kEpsilon, add ? residual_tensor : Tensor(), relu, y});
            const Array expected = reference::batch_norm(x, {mean.values, variance.values}, p.gamma, p.beta, kEpsilon,
                                                         add ? &residual : nullptr, relu);
            // Terms of up to 6 (scale 3, x 2), each rounded to float32 a few times, and one rounding of the result.
            check_close(device.get(y), expected, 1.01 * rounding(dtype), 2e-6,
                        fmt::format("{} {} add {} relu {}", shape.str(), dtype_name(dtype), add, relu));
          }
        }
      }
    }
  }
}

TEST_CASE("batch norm backward agrees with float64") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const Shape& shape : kShapes) {
      if (shape.size() == shape[1]) continue;  // one row: a variance of 0, everything is rounding
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const bool relu : {false, true}) {
          const std::string what = fmt::format("{} {} relu {}", shape.str(), dtype_name(dtype), relu);
          const std::int64_t channels = shape[1];
          const double count = static_cast<double>(shape.size() / channels);
          Array x = uniform(shape, 21, -1.0, 3.0), dy = uniform(shape, 22);
          const Tensor x_tensor = device.put(x, dtype), dy_tensor = device.put(dy, dtype);
          const Parameters p(device, channels);
          const Statistics s = statistics(device, x_tensor);
          Tensor y;
          Array y_values;
          if (relu) {
            y = device.spoiled(shape, dtype);
            device.backend.run(ops::BatchNormApply{x_tensor, s.mean, s.variance, p.gamma_tensor, p.beta_tensor,
                                                   kEpsilon, Tensor(), true, y});
            y_values = device.get(y);  // the mask is the output's as stored
          }
          const auto expected = reference::batch_norm_backward(dy, x, relu ? &y_values : nullptr, p.gamma, kEpsilon);
          const Tensor dgamma = device.spoiled({channels}), dbeta = device.spoiled({channels});
          device.backend.run(ops::BatchNormBackwardReduce{dy_tensor, x_tensor, y, s.mean, s.variance, p.gamma_tensor,
                                                          p.beta_tensor, kEpsilon, false, dgamma, dbeta});
          // Terms of about 1 that may cancel; float32 sums of 32 rows err by some 1e-7 each, in any direction.
          check_close(device.get(dgamma), expected.dgamma, 1e-6, 1e-6 * std::sqrt(count), what + " dgamma");
          check_close(device.get(dbeta), expected.dbeta, 1e-6, 1e-6 * std::sqrt(count), what + " dbeta");
          const Tensor dx = device.spoiled(shape, dtype);
          device.backend.run(ops::BatchNormBackwardApply{dy_tensor, x_tensor, y, s.mean, s.variance, p.gamma_tensor,
                                                         p.beta_tensor, dgamma, dbeta, count, kEpsilon, false, dx});
          // Three terms that may cancel, each rounded to float32 a few times; scale is at most 1.5 / std.
          const double scale = 1.5 / std::sqrt(*std::min_element(s.values.variance.begin(), s.values.variance.end()));
          check_close(device.get(dx), expected.dx, 1.01 * rounding(dtype), 2e-6 * scale, what + " dx");
          Array sum = uniform(shape, 23);
          const Tensor dresidual = device.put(sum, dtype);
          device.backend.run(ops::BatchNormBackwardResidual{dy_tensor, y, dresidual});
          for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += expected.dresidual.values[i];
          check_close(device.get(dresidual), sum, rounding(dtype), 0.0, what + " dresidual");  // one rounding
        }
      }
    }
  }
}

TEST_CASE("batch norm backward agrees with finite differences of the reference") {
  Device device(1);
  const Shape shape{3, 4, 3, 2};
  for (const bool relu : {false, true}) {
    Array x = uniform(shape, 31, -1.0, 3.0), dy = uniform(shape, 32), residual = uniform(shape, 33);
    const Tensor x_tensor = device.put(x), dy_tensor = device.put(dy), residual_tensor = device.put(residual);
    Parameters p(device, shape[1]);
    const Statistics s = statistics(device, x_tensor);
    const Tensor y = device.spoiled(shape), dx = device.spoiled(shape), dresidual = device.spoiled(shape);
    device.backend.zero(dresidual);
    const Tensor dgamma = device.spoiled({shape[1]}), dbeta = device.spoiled({shape[1]});
    device.backend.run(ops::BatchNormApply{x_tensor, s.mean, s.variance, p.gamma_tensor, p.beta_tensor, kEpsilon,
                                           residual_tensor, relu, y});
    const Tensor mask = relu ? y : Tensor();
    device.backend.run(ops::BatchNormBackwardReduce{dy_tensor, x_tensor, mask, s.mean, s.variance, p.gamma_tensor,
                                                    p.beta_tensor, kEpsilon, false, dgamma, dbeta});
    device.backend.run(ops::BatchNormBackwardApply{dy_tensor, x_tensor, mask, s.mean, s.variance, p.gamma_tensor,
                                                   p.beta_tensor, dgamma, dbeta, 18.0, kEpsilon, false, dx});
    device.backend.run(ops::BatchNormBackwardResidual{dy_tensor, mask, dresidual});
    // The scalar is the product of dy with the reference's output, as a function of each input in turn.
    const auto check = [&](const std::string& what, Array& input, const Tensor& gradient) {
      std::vector<float> buffer(input.values.begin(), input.values.end());
      const Array g = device.get(gradient);
      const std::vector<float> analytic(g.values.begin(), g.values.end());
      const auto value = [&] {
        input.values.assign(buffer.begin(), buffer.end());
        const Array out =
            reference::batch_norm(x, reference::batch_norm_statistics(x), p.gamma, p.beta, kEpsilon, &residual, relu);
        double sum = 0.0;
        for (std::size_t i = 0; i < out.values.size(); ++i) sum += out.values[i] * dy.values[i];
        return sum;
      };
      // Without noise but for step^2: 1e-6 times a third derivative of about 1. An x moves all 18 outputs of its
      // channel, so that a kink of one of them shows as a small difference of the slopes.
      check_gradient(what, buffer, analytic, value, {.step = 1e-4, .tolerance = 2e-5, .kink = 2e-3});
      value();
    };
    check("x", x, dx);
    check("residual", residual, dresidual);
    check("gamma", p.gamma, dgamma);
    check("beta", p.beta, dbeta);
  }
}

TEST_CASE("batch norm gives the same bits every time, and may work in place") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    const Shape shape{4, 64, 23, 19};
    Array x = uniform(shape, 41), dy = uniform(shape, 42);
    const Tensor x_tensor = device.put(x), dy_tensor = device.put(dy);
    const Parameters p(device, shape[1]);
    const double count = static_cast<double>(shape.size() / shape[1]);
    std::vector<std::uint8_t> first;
    enum class Place { kOwn, kOverX, kOverDy };
    for (const Place place : {Place::kOwn, Place::kOwn, Place::kOverX, Place::kOverDy}) {
      const bool in_place = place != Place::kOwn;
      const Statistics s = statistics(device, x_tensor);
      const Tensor dgamma = device.spoiled({64}), dbeta = device.spoiled({64});
      const Tensor y = device.spoiled(shape), output = in_place ? device.backend.tensor(shape, DType::kF32) : y;
      if (in_place) device.backend.run(ops::Cast{x_tensor, output});
      device.backend.run(ops::BatchNormApply{in_place ? output : x_tensor, s.mean, s.variance, p.gamma_tensor,
                                             p.beta_tensor, kEpsilon, Tensor(), true, output});
      device.backend.run(ops::BatchNormBackwardReduce{dy_tensor, x_tensor, output, s.mean, s.variance, p.gamma_tensor,
                                                      p.beta_tensor, kEpsilon, false, dgamma, dbeta});
      const Tensor dx = device.spoiled(shape);
      if (in_place) device.backend.run(ops::Cast{place == Place::kOverX ? x_tensor : dy_tensor, dx});
      device.backend.run(ops::BatchNormBackwardApply{
          place == Place::kOverDy ? dx : dy_tensor, place == Place::kOverX ? dx : x_tensor, output, s.mean, s.variance,
          p.gamma_tensor, p.beta_tensor, dgamma, dbeta, count, kEpsilon, false, dx});
      std::vector<std::uint8_t> all;
      for (const Tensor& tensor : {s.mean, s.variance, output, dgamma, dbeta, dx}) {
        const auto bytes = device.bytes(tensor);
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
      if (first.empty()) first = all;
      CHECK(all == first);
    }
  }
}

TEST_CASE("the ReLU mask that a forward returns lets through what its output lets through") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t channels : {5, 16, 48, 128, 144, 1040}) {
      CAPTURE(channels);
      Device device(2);
      const Shape shape{3, channels, 5, 7};
      Array x = uniform(shape, 51), residual = uniform(shape, 52), dy = uniform(shape, 53);
      const Tensor x_tensor = device.put(x, dtype), residual_tensor = device.put(residual, dtype),
                   dy_tensor = device.put(dy, dtype);
      const Parameters p(device, channels);
      const Statistics s = statistics(device, x_tensor);
      const Tensor expected = device.spoiled(shape, dtype), y = device.spoiled(shape, dtype);
      device.backend.run(ops::BatchNormApply{x_tensor, s.mean, s.variance, p.gamma_tensor, p.beta_tensor, kEpsilon,
                                             residual_tensor, true, expected});
      Tensor mask;
      device.backend.run(ops::BatchNormApply{x_tensor, s.mean, s.variance, p.gamma_tensor, p.beta_tensor, kEpsilon,
                                             residual_tensor, true, y, &mask});
      CHECK(device.bytes(y) == device.bytes(expected));
      if (dtype == DType::kF32 && channels >= 128) CHECK(mask.bytes() < y.bytes() / 15);
      // Without AVX512-BF16 the output is the mask.
      if (dtype == DType::kBF16 && mask.dtype() == DType::kU8) CHECK(mask.bytes() == y.bytes() / 16);
      std::vector<std::vector<std::uint8_t>> results;
      for (const Tensor& way : {expected, mask}) {
        const Tensor dgamma = device.spoiled({channels}), dbeta = device.spoiled({channels});
        const Tensor dx = device.spoiled(shape, dtype), dresidual = device.put(residual, dtype);
        device.backend.run(ops::BatchNormBackwardReduce{dy_tensor, x_tensor, way, s.mean, s.variance, p.gamma_tensor,
                                                        p.beta_tensor, kEpsilon, false, dgamma, dbeta});
        device.backend.run(ops::BatchNormBackwardApply{dy_tensor, x_tensor, way, s.mean, s.variance, p.gamma_tensor,
                                                       p.beta_tensor, dgamma, dbeta, 105, kEpsilon, false, dx});
        device.backend.run(ops::BatchNormBackwardResidual{dy_tensor, way, dresidual});
        for (const Tensor& tensor : {dgamma, dbeta, dx, dresidual}) results.push_back(device.bytes(tensor));
      }
      for (std::size_t i = 0; i < 4; ++i) CHECK(results[i] == results[i + 4]);
    }
  }
}
