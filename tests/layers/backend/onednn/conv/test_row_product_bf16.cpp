// SPDX-License-Identifier: Apache-2.0
//
// 1x1 convolutions of whole numbers in bfloat16, and so exact sums, each rounded once: numbers of pixels and channels
// that fill kernels and blocks and that do not, strides, with a bias and without, any number of threads.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include "layers/backend/onednn/conv/row_product_bf16.h"
#include "layers/backend/onednn/onednn_state.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

constexpr std::int64_t kPanel = 16;

// A weight [out, in, 1, 1] in panels of output channels, a pair of neighbouring input channels for each; backward: the
// other way round.
Array panels_of(const Array& weight, bool backward) {
  const std::int64_t out = weight.shape[0], in = weight.shape[1], depth = backward ? out : in;
  Array panels({out * in});
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t i = 0; i < in; ++i) {
      const std::int64_t column = backward ? i : o, k = backward ? o : i;
      const std::int64_t word = (column / kPanel * (depth / 2) + k / 2) * kPanel + column % kPanel;
      panels.values[static_cast<std::size_t>(2 * word + k % 2)] = weight.at(o, i);
    }
  }
  return panels;
}

void check_both_directions(const ConvCase& c, int threads) {
  const Conv2dSpec& s = c.spec;
  CAPTURE(s.in_channels);
  CAPTURE(s.out_channels);
  CAPTURE(s.stride.height);
  CAPTURE(c.input().str());
  CAPTURE(threads);
  REQUIRE(has_row_product_bf16(s));
  Device device(threads, DType::kBF16);
  OnednnState state;
  Array x = whole(c.input(), 1), weight = whole({s.out_channels, s.in_channels, 1, 1}, 2),
        bias = whole({s.out_channels}, 3), forward_panels = panels_of(weight, false),
        backward_panels = panels_of(weight, true);
  const Tensor input = device.put(x, DType::kBF16), biases = device.put(bias),
               forward_weight = device.put(forward_panels, DType::kBF16),
               backward_weight = device.put(backward_panels, DType::kBF16);
  Array expected = reference::conv2d(s, x, weight);
  const Tensor y = device.spoiled(expected.shape, DType::kBF16);
  const auto forward = make_row_product_bf16(s, false);
  forward->run(state, device.backend, input, forward_weight.raw(), nullptr, y);
  CHECK(device.get(y).values == rounded(expected).values);
  const std::int64_t pixels = expected.shape[2] * expected.shape[3];
  for (std::int64_t i = 0; i < expected.shape.size(); ++i) {
    expected.values[static_cast<std::size_t>(i)] += bias.values[static_cast<std::size_t>(i / pixels % s.out_channels)];
  }
  forward->run(state, device.backend, input, forward_weight.raw(), biases.raw(), y);
  CHECK(device.get(y).values == rounded(expected).values);
  if (s.stride != 1) return;
  Array dy = whole(expected.shape, 4);
  const Tensor gradient = device.put(dy, DType::kBF16), dx = device.spoiled(c.input(), DType::kBF16);
  make_row_product_bf16(s, true)->run(state, device.backend, gradient, backward_weight.raw(), nullptr, dx);
  CHECK(device.get(dx).values == rounded(conv2d_backward(s, dy, x, weight).dx).values);
}

}  // namespace

TEST_CASE("bfloat16 rows of whole numbers are exact but for one rounding, with any number of threads") {
  for (const int threads : {1, 2, 3}) {
    for (const ConvCase& c : {ConvCase{{16, 16, 1, 1, 0}, 1, 1, 1}, ConvCase{{48, 80, 1, 1, 0}, 2, 5, 7},
                              ConvCase{{32, 208, 1, 1, 0}, 1, 40, 31}, ConvCase{{512, 32, 1, 1, 0}, 3, 9, 11},
                              ConvCase{{48, 80, 1, 2, 0}, 2, 9, 8}, ConvCase{{512, 64, 1, 3, 0}, 1, 50, 41}}) {
      check_both_directions(c, threads);
    }
  }
}

TEST_CASE("bfloat16 rows: which convolutions have them") {
  CHECK(has_row_product_bf16({64, 256, 1, 2, 0}));
  CHECK_FALSE(has_row_product_bf16({64, 256, 3, 1, 1}));
  CHECK_FALSE(has_row_product_bf16({64, 256, 1, 1, 1}));
  CHECK_FALSE(has_row_product_bf16({60, 256, 1, 1, 0}));
  CHECK_FALSE(has_row_product_bf16({64, 250, 1, 1, 0}));
}
