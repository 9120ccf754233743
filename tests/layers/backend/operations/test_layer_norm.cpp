// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation against the float64 reference, and its gradients against finite differences of that.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/layers/backend/every_operation.h"
#include "tests/layers/backend/reference.h"
#include "tests/layers/gradient_check.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

constexpr float kEpsilon = 1e-5F;

void call_layer_norm(Backend& backend, const Shape& shape) {
  RandomData data(backend);
  const Shape channels{shape[1]}, rows{shape[0] * shape.pixels()};
  const Tensor x = data.activations(shape, -1, 2), dy = data.activations(shape);
  const Tensor gamma = data.floats(channels, 0.5, 1.5), beta = data.floats(channels);
  const Tensor mean = data.output_f32(rows), inverse_std = data.output_f32(rows);
  backend.run(ops::LayerNormForward{x, gamma, beta, kEpsilon, data.output(shape), mean, inverse_std});
  backend.run(ops::LayerNormBackwardInput{dy, x, gamma, mean, inverse_std, data.output(shape)});
  const Tensor dgamma = data.output_f32(channels), dbeta = data.output_f32(channels);
  for (const bool accumulate : {false, true}) {
    backend.run(ops::LayerNormBackwardWeight{dy, x, mean, inverse_std, dgamma, dbeta, accumulate});
  }
}

const RegisterCalls registered([](Backend& backend, std::int64_t batch, std::int64_t channels) {
  call_layer_norm(backend, {batch + 7, channels});
  call_layer_norm(backend, {batch, channels, 11, 9});
});

// [row, channel], the row's mean and 1 / sqrt(variance + epsilon).
struct Normalized {
  Array values, mean, inverse_std;
};

Normalized normalize(const Array& x) {
  const std::int64_t channels = x.shape[1], pixels = x.height() * x.width(), rows = x.shape[0] * pixels;
  Normalized n{Array({rows, channels}), Array({rows}), Array({rows})};
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto value = [&](std::int64_t c) {
      return x.at(row / pixels, c, row % pixels / x.width(), row % pixels % x.width());
    };
    double mean = 0.0, variance = 0.0;
    for (std::int64_t c = 0; c < channels; ++c) mean += value(c) / static_cast<double>(channels);
    for (std::int64_t c = 0; c < channels; ++c) {
      variance += (value(c) - mean) * (value(c) - mean) / static_cast<double>(channels);
    }
    const double inverse_std = 1 / std::sqrt(variance + kEpsilon);
    for (std::int64_t c = 0; c < channels; ++c) n.values.at(row, c) = (value(c) - mean) * inverse_std;
    n.mean.values[static_cast<std::size_t>(row)] = mean;
    n.inverse_std.values[static_cast<std::size_t>(row)] = inverse_std;
  }
  return n;
}

// Calls f(n, c, h, w, row) for every element of an array of x's shape.
template <class F>
void for_each(const Shape& shape, F f) {
  const std::int64_t height = shape.rank() == 4 ? shape[2] : 1, width = shape.rank() == 4 ? shape[3] : 1;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      for (std::int64_t h = 0; h < height; ++h) {
        for (std::int64_t w = 0; w < width; ++w) f(n, c, h, w, (n * height + h) * width + w);
      }
    }
  }
}

Array layer_norm(const Array& x, const Array& gamma, const Array& beta) {
  const Normalized normalized = normalize(x);
  Array y(x.shape);
  for_each(x.shape, [&](auto n, auto c, auto h, auto w, auto row) {
    const auto channel = static_cast<std::size_t>(c);
    y.at(n, c, h, w) = gamma.values[channel] * normalized.values.at(row, c) + beta.values[channel];
  });
  return y;
}

struct Case {
  Array x, gamma, beta, dy;
  explicit Case(const Shape& shape)
      : x(uniform(shape, 1, -1, 2)),
        gamma(uniform({shape[1]}, 2, 0.5, 1.5)),
        beta(uniform({shape[1]}, 3)),
        dy(uniform(shape, 4)) {}
};

struct Results {
  Tensor y, mean, inverse_std, dx, dgamma, dbeta;
};

// On `device`, whose rounding the arrays of the case then have.
Results run(Device& device, Case& c, DType dtype) {
  const Shape rows{c.x.shape[0] * c.x.shape.pixels()}, channels{c.x.shape[1]};
  const Tensor x = device.put(c.x, dtype), dy = device.put(c.dy, dtype);
  const Tensor gamma = device.put(c.gamma), beta = device.put(c.beta);
  Results r{device.spoiled(c.x.shape, dtype), device.spoiled(rows),     device.spoiled(rows),
            device.spoiled(c.x.shape, dtype), device.spoiled(channels), device.spoiled(channels)};
  device.backend.run(ops::LayerNormForward{x, gamma, beta, kEpsilon, r.y, r.mean, r.inverse_std});
  device.backend.run(ops::LayerNormBackwardInput{dy, x, gamma, r.mean, r.inverse_std, r.dx});
  device.backend.run(ops::LayerNormBackwardWeight{dy, x, r.mean, r.inverse_std, r.dgamma, r.dbeta, false});
  return r;
}

}  // namespace

TEST_CASE("layer norm and its sums agree with float64") {
  for (const int threads : {1, 2, 3}) {
    Device device(threads);
    for (const Shape& shape : {Shape{1, 3, 1, 1}, Shape{5, 2}, Shape{2, 17, 5, 3}, Shape{1, 64, 7, 9}, Shape{300, 130},
                               Shape{4, 32, 23, 19}, Shape{3, 2048}}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const std::string what = fmt::format("{} in {} with {} threads", shape.str(), dtype_name(dtype), threads);
        Case c(shape);
        const Results r = run(device, c, dtype);
        const Normalized expected = normalize(c.x);
        // A lane adds up to 128 values of at most 2, so the mean errs by 1e-6 at most and the variance by as much of
        // its value (about 0.75); two channels may be close together, and their difference keeps the inputs' 6e-8.
        check_close(device.get(r.mean), expected.mean, 0.0, 1e-6, what + ", mean");
        check_close(device.get(r.inverse_std), expected.inverse_std, 5e-6, 0.0, what + ", inverse std");
        check_close(device.get(r.y), layer_norm(c.x, c.gamma, c.beta), 1.01 * rounding(dtype), 2e-5, what + ", y");

        Array dgamma({shape[1]}), dbeta({shape[1]});
        for_each(shape, [&](auto n, auto channel, auto h, auto w, auto row) {
          const double g = c.dy.at(n, channel, h, w);
          dgamma.values[static_cast<std::size_t>(channel)] += g * expected.values.at(row, channel);
          dbeta.values[static_cast<std::size_t>(channel)] += g;
        });
        // Each term errs as y does; the sums are double, then rounded.
        const auto rows = static_cast<double>(r.mean.size());
        check_close(device.get(r.dgamma), dgamma, 1e-7, 1e-5 * std::sqrt(rows), what + ", dgamma");
        check_close(device.get(r.dbeta), dbeta, 1e-7, 1e-12 * rows, what + ", dbeta");
      }
    }
  }
}

TEST_CASE("the gradients of layer norm are slopes of the float64 reference") {
  for (const Shape& shape : {Shape{3, 12, 2, 2}, Shape{4, 40}}) {
    Device device(2);
    Case c(shape);
    const Results r = run(device, c, DType::kF32);
    const auto value = [&] {
      const Array y = layer_norm(c.x, c.gamma, c.beta);
      double sum = 0.0;
      for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * c.dy.values[i];
      return sum;
    };
    const auto check = [&](const char* what, Array& array, const Tensor& gradient) {
      std::vector<float> buffer(array.values.begin(), array.values.end());
      const Array g = device.get(gradient);
      const auto moved = [&] {
        array.values.assign(buffer.begin(), buffer.end());
        return value();
      };
      // step^2 times the third derivative, and the float arithmetic of the gradient: some 1e-6 each.
      check_gradient(what, buffer, std::vector<float>(g.values.begin(), g.values.end()), moved,
                     {.step = 1e-3, .tolerance = 2e-5, .kink = 1e-1, .skipped_share = 0.0});
      array.values.assign(buffer.begin(), buffer.end());
    };
    check("x", c.x, r.dx);
    check("gamma", c.gamma, r.dgamma);
    check("beta", c.beta, r.dbeta);
  }
}

TEST_CASE("gradients of two halves of a batch, added, are those of two ranks, summed") {
  Device device(1);
  Case first({3, 5, 4, 4}), second({3, 5, 4, 4});
  second.dy = uniform(second.dy.shape, 9);
  const Results a = run(device, first, DType::kF32), b = run(device, second, DType::kF32);
  const Tensor x = device.put(second.x), dy = device.put(second.dy);
  Array sum = device.get(a.dgamma);
  const Array term = device.get(b.dgamma);
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    sum.values[i] = static_cast<float>(sum.values[i]) + static_cast<float>(term.values[i]);
  }
  device.backend.run(ops::LayerNormBackwardWeight{dy, x, b.mean, b.inverse_std, a.dgamma, a.dbeta, true});
  CHECK(device.get(a.dgamma).values == sum.values);
}
