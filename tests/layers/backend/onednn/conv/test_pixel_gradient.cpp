// SPDX-License-Identifier: Apache-2.0
//
// Weight gradients as products over pixels, of whole numbers and so exact: numbers of pixels that fill pairs and blocks
// and that do not, channels that fill panels and that do not, taps that see few pixels and none, any number of threads.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "layers/backend/onednn/conv/pixel_gradient.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/error.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

const std::vector<ConvCase> kCases{
    {{16, 32, 1, 1, 0}, 1, 1, 1},     {{32, 48, 3, 1, 1}, 1, 3, 5}, {{16, 16, 3, 1, 1}, 3, 1, 1},
    {{16, 80, 5, 2, 2}, 2, 6, 9},     {{48, 16, 1, 2, 0}, 3, 9, 8}, {{64, 64, 3, 2, 1}, 8, 12, 11},
    {{272, 528, 1, 1, 0}, 2, 13, 23}, {{32, 32, 1, 1, 1}, 2, 3, 3}, {{16, 32, 1, 1, 0}, 3, 17, 21},
    {{32, 16, 1, 1, 0}, 4, 16, 16},
};

}  // namespace

TEST_CASE("weight gradients as products over pixels of whole numbers are exact, with any number of threads") {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const ConvCase& c : kCases) {
      CAPTURE(dtype_name(dtype));
      CAPTURE(c.spec.in_channels);
      CAPTURE(c.spec.kernel.height);
      Array x = whole(c.input(), 1);
      const Array w = whole({c.spec.out_channels, c.spec.in_channels, c.spec.kernel.height, c.spec.kernel.width}, 2);
      Array dy = whole(conv2d(c.spec, x, w).shape, 3);
      const Array expected = conv2d_backward(c.spec, dy, x, w).dweight;
      REQUIRE(has_pixel_gradient(c.spec));
      for (const int threads : {1, 2, 3, 6}) {
        CAPTURE(threads);
        Device device(threads);
        OnednnState state;
        const Tensor input = device.put(x, dtype), gradient = device.put(dy, dtype),
                     dw = device.spoiled({c.spec.weight_shape().size()});
        const auto product = make_pixel_gradient(c.spec, x.shape, dtype);
        product->run(state, device.backend, input, gradient, dw, Tensor());
        CHECK(from_hwio(device.get(dw), w.shape).values == expected.values);
        CHECK_THROWS_AS(product->run(state, device.backend, input, gradient, dw, dw), Error);
      }
    }
  }
}

TEST_CASE("those of rows of whole numbers are exact, in both orders of the weight") {
  constexpr std::int64_t kRows = 301, kIn = 48, kOut = 528;
  Device device(2);
  OnednnState state;
  Array x = whole({kRows, kIn}, 1), dy = whole({kRows, kOut}, 2);
  for (const bool by_inputs : {false, true}) {
    CAPTURE(by_inputs);
    const Tensor dw = device.spoiled({kIn * kOut});
    make_row_gradient(kRows, kIn, kOut, by_inputs)
        ->run(state, device.backend, device.put(x), device.put(dy), dw, Tensor());
    const Array result = device.get(dw);
    std::size_t wrong = 0;
    for (std::int64_t i = 0; i < kIn; ++i) {
      for (std::int64_t o = 0; o < kOut; ++o) {
        double sum = 0;
        for (std::int64_t row = 0; row < kRows; ++row) {
          sum +=
              x.values[static_cast<std::size_t>(row * kIn + i)] * dy.values[static_cast<std::size_t>(row * kOut + o)];
        }
        const std::int64_t at = by_inputs ? i * kOut + o : o * kIn + i;
        if (result.values[static_cast<std::size_t>(at)] != sum) ++wrong;
      }
    }
    CHECK(wrong == 0);
  }
}
