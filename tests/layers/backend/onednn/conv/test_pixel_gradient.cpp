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
    {{16, 32, 1, 1, 0}, 1, 1, 1},   {{32, 48, 3, 1, 1}, 1, 3, 5}, {{16, 16, 3, 1, 1}, 3, 1, 1},
    {{16, 80, 5, 2, 2}, 2, 6, 9},   {{48, 16, 1, 2, 0}, 3, 9, 8}, {{64, 64, 3, 2, 1}, 8, 12, 11},
    {{272, 528, 1, 1, 0}, 1, 5, 3}, {{32, 32, 1, 1, 1}, 2, 3, 3}, {{16, 32, 1, 1, 0}, 3, 17, 21},
    {{32, 16, 1, 1, 0}, 4, 16, 16},
};

}  // namespace

TEST_CASE("weight gradients as products over pixels of whole numbers are exact, with any number of threads") {
  for (const ConvCase& c : kCases) {
    CAPTURE(c.spec.in_channels);
    CAPTURE(c.spec.kernel.height);
    Array x = whole(c.input(), 1);
    const Array w = whole({c.spec.out_channels, c.spec.in_channels, c.spec.kernel.height, c.spec.kernel.width}, 2);
    Array dy = whole(conv2d(c.spec, x, w).shape, 3);
    const Array expected = conv2d_backward(c.spec, dy, x, w).dweight;
    for (const int threads : {1, 2, 3, 6}) {
      CAPTURE(threads);
      Device device(threads);
      OnednnState state;
      const Tensor input = device.put(x, DType::kBF16), gradient = device.put(dy, DType::kBF16),
                   dw = device.spoiled({c.spec.weight_shape().size()});
      const auto product = make_pixel_gradient(c.spec, x.shape);
      product->run(state, device.backend, input, gradient, dw, Tensor());
      CHECK(from_hwio(device.get(dw), w.shape).values == expected.values);
      CHECK_THROWS_AS(product->run(state, device.backend, input, gradient, dw, dw), Error);
    }
  }
}
