// SPDX-License-Identifier: Apache-2.0
//
// Winograd's convolutions: exact where the numbers are, close to float64 where they are not, and chosen where they pay.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/backend/onednn/bfloat16.h"
#include "layers/backend/onednn/conv/winograd.h"
#include "layers/backend/onednn/conv/winograd_transforms.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/error.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

// In the weight gradient one group of tiles, several of a thread, of one size and of two, several that all threads take
// together (256 channels); edges that cut tiles, every padding, odd multiples of 16 channels.
const std::vector<ConvCase> kCases{
    {{48, 64, 3, 1, 1}, 3, 8, 8},   {{64, 48, 3, 1, 0}, 2, 9, 10},  {{64, 64, 3, 1, 2}, 5, 6, 7},
    {{128, 160, 3, 1, 1}, 8, 8, 8}, {{48, 48, 3, 1, 1}, 4, 16, 16}, {{160, 128, 3, 1, 2}, 1, 13, 6},
    {{48, 48, 3, 1, 1}, 9, 16, 16}, {{48, 48, 3, 1, 1}, 9, 13, 13}, {{256, 272, 3, 1, 1}, 8, 8, 7},
};

struct Results {
  Array y, dx, dw;
};

// All three directions in tiles of m x m, with `bias` in every channel; 0: none. dtype: of activations.
Results run(const ConvCase& c, Array x, const Array& w, Array dy, float bias, int threads, std::int64_t m,
            DType dtype = DType::kF32) {
  Device device(threads);
  OnednnState state;
  const Conv2dSpec& s = c.spec;
  const Tensor input = device.put(x, dtype), gradient = device.put(dy, dtype);
  Array rows = to_hwio(w);
  const Tensor native = device.put(rows);
  const std::int64_t pairs = s.in_channels * s.out_channels;
  const Shape planes{static_cast<std::int64_t>(winograd_weights(s, m, false).get_size() / sizeof(float))};
  const Tensor points = device.spoiled(planes), transposed = device.spoiled(planes);
  winograd_weight(m, native.data<float>(), s.in_channels, s.out_channels, points.data<float>());
  winograd_weight_transposed(m, native.data<float>(), s.in_channels, s.out_channels, transposed.data<float>());
  std::vector<float> shift(static_cast<std::size_t>(s.out_channels), bias);
  const Tensor y = device.spoiled(dy.shape, dtype), dx = device.spoiled(x.shape, dtype),
               dw = device.spoiled({9 * pairs});
  make_winograd(s, x.shape, m, false)
      ->run(state, device.backend, input, points.raw(), bias == 0 ? nullptr : shift.data(), y);
  make_winograd(s, x.shape, m, true)->run(state, device.backend, gradient, transposed.raw(), nullptr, dx);
  const auto product = make_winograd_gradient(s, x.shape, m);
  product->run(state, device.backend, input, gradient, dw, Tensor());
  CHECK_THROWS_AS(product->run(state, device.backend, input, gradient, dw, dw), Error);

  return {device.get(y), device.get(dx), from_hwio(device.get(dw), w.shape)};
}

// As an activation of this type holds them.
std::vector<double> stored(std::vector<double> values, DType dtype) {
  for (double& value : values) {
    if (dtype == DType::kBF16) value = static_cast<float>(BFloat16(static_cast<float>(value)));
  }
  return values;
}

double relative_error(const Array& actual, const Array& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    difference += std::pow(actual.values[i] - expected.values[i], 2);
    norm += std::pow(expected.values[i], 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace

TEST_CASE("Winograd's convolutions of whole numbers are exact, but for the rounding of bfloat16 results") {
  for (const ConvCase& c : kCases) {
    CAPTURE(c.spec.in_channels);
    CAPTURE(c.spec.padding);
    const Array x = whole(c.input(), 1);
    const Array w = whole({c.spec.out_channels, c.spec.in_channels, 3, 3}, 2, 4);  // twice halved
    Array y = conv2d(c.spec, x, w);
    const Array dy = whole(y.shape, 3, 4);
    const Conv2dGradients expected = conv2d_backward(c.spec, dy, x, w);
    for (double& value : y.values) value += 7;
    for (const int threads : {1, 2, 3}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Results results = run(c, x, w, dy, 7, threads, 2, dtype);
        CHECK(results.y.values == stored(y.values, dtype));
        CHECK(results.dx.values == stored(expected.dx.values, dtype));
        CHECK(results.dw.values == expected.dweight.values);
      }
    }
  }
}

TEST_CASE("Winograd's convolutions lose a few bits") {
  for (const ConvCase& c : {ConvCase{{256, 256, 3, 1, 1}, 2, 8, 8}, ConvCase{{48, 64, 3, 1, 2}, 10, 17, 10},
                            ConvCase{{64, 48, 3, 1, 0}, 5, 13, 15}}) {
    CAPTURE(c.spec.in_channels);
    Array x = uniform(c.input(), 4), w = uniform({c.spec.out_channels, c.spec.in_channels, 3, 3}, 5);
    Device device(1);
    device.put(x);  // rounds them to float32
    device.put(w);
    Array dy = uniform(conv2d(c.spec, x, w).shape, 6);
    device.put(dy);
    const Array y = conv2d(c.spec, x, w);
    const Conv2dGradients expected = conv2d_backward(c.spec, dy, x, w);
    for (const std::int64_t m : {2, 4}) {
      CAPTURE(m);
      // m = 2: some 16 half units of the last place, as a sum of 256 random roundings has. m = 4: the matrices'
      // entries, up to 8 and down to 1/24, multiply what the points have lost; what float32 backends may differ by is
      // the limit.
      const double bound = m == 2 ? 16 * 0x1p-24 : 1e-5;
      const Results results = run(c, x, w, dy, 0, 2, m);
      CHECK(relative_error(results.y, y) < bound);
      CHECK(relative_error(results.dx, expected.dx) < bound);
      CHECK(relative_error(results.dw, expected.dweight) < bound);
    }
  }
}

TEST_CASE("Winograd's way is for whole tiles, enough channels and enough tiles") {
  const auto side = [](const Conv2dSpec& spec, std::int64_t images, std::int64_t size) {
    return winograd_side(spec, {images, spec.in_channels, size, size});
  };
  CHECK(side({64, 64, 3, 1, 1}, 4, 8) == 4);
  CHECK(side({64, 64, 3, 2, 1}, 4, 8) == 0);
  CHECK(side({64, 64, 1, 1, 0}, 4, 8) == 0);
  CHECK(side({64, 64, 5, 1, 2}, 4, 8) == 0);
  CHECK(side({64, 64, 3, 1, 3}, 4, 8) == 0);
  CHECK(side({64, 56, 3, 1, 1}, 4, 8) == 0);   // no whole vectors
  CHECK(side({32, 32, 3, 1, 1}, 4, 8) == 0);   // too few channels
  CHECK(side({64, 64, 3, 1, 1}, 16, 5) == 0);  // tiles half empty
  CHECK(side({512, 512, 3, 1, 1}, 8, 4) == 2);
  CHECK(side({512, 512, 3, 1, 1}, 2, 4) == 0);  // 8 tiles for 16 MiB of points
}
