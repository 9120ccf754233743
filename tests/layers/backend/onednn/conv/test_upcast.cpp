// SPDX-License-Identifier: Apache-2.0
//
// bfloat16 activations through float32 products, some images at a time: of whole numbers the results are exact but for
// their rounding, whatever the parts.
#include <doctest/doctest.h>

#include <cstdint>

#include "layers/backend/onednn/conv/direct_conv2d.h"
#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/conv/upcast.h"
#include "layers/backend/onednn/onednn_state.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

// A state whose products are in float32, on any CPU.
OnednnState upcasting() { return {DType::kBF16, CpuRules{}}; }

}  // namespace

TEST_CASE("convolutions of bfloat16 in float32 do not depend on the parts") {
  const Conv2dSpec spec{16, 32, 3, 2, 1};
  const Array x = whole({6, 16, 9, 7}, 1), w = whole({32, 16, 3, 3}, 2);
  const Array y = conv2d(spec, x, w);
  const Array dy = whole(y.shape, 3);
  const Array dw = conv2d_backward(spec, dy, x, w).dweight;
  for (const std::int64_t images : {1, 2, 3, 6}) {
    CAPTURE(images);
    Device device(2);
    OnednnState state = upcasting();
    Array x_copy = x, dy_copy = dy, rows = to_hwio(w);
    const Tensor input = device.put(x_copy, DType::kBF16), gradient = device.put(dy_copy, DType::kBF16),
                 weight = device.put(rows);
    const Tensor output = device.spoiled(y.shape, DType::kBF16), sums = device.spoiled({w.shape.size()});
    const Shape part = x.shape.with_batch(images);
    in_parts(state, make_im2col_forward(state, spec, part), images)
        ->run(state, device.backend, input, weight.raw(), nullptr, output);
    in_parts(state, make_im2col_gradient(state, spec, part, DType::kF32), images)
        ->run(state, device.backend, input, gradient, sums, Tensor());
    CHECK(device.get(output).values == rounded(y).values);
    CHECK(from_hwio(device.get(sums), w.shape).values == dw.values);
  }
}

TEST_CASE("the gradient of a bias is the sum over the parts") {
  const Conv2dSpec spec{24, 40, 1, 1, 0};
  const Array x = whole({12, 24, 1, 1}, 4), dy = whole({12, 40, 1, 1}, 5), w(Shape{40, 24, 1, 1});
  const Array dw = conv2d_backward(spec, dy, x, w).dweight;
  Array dbias(Shape{40, 1});
  for (std::int64_t n = 0; n < 12; ++n) {
    for (std::int64_t o = 0; o < 40; ++o) dbias.at(o, 0) += dy.at(n, o);
  }
  for (const std::int64_t images : {3, 12}) {
    Device device(1);
    OnednnState state = upcasting();
    Array x_copy = x, dy_copy = dy;
    const Tensor input = device.put(x_copy, DType::kBF16), gradient = device.put(dy_copy, DType::kBF16);
    const auto product =
        in_parts(state, make_direct_gradient(state, spec, x.shape.with_batch(images), DType::kF32, true), images);
    const Tensor sums = tensor_of(device.backend, product->format()), rows = device.spoiled({w.shape.size()}),
                 bias = device.spoiled({40});
    product->run(state, device.backend, input, gradient, sums, bias);
    reorder(state, product->format(), sums.raw(), im2col_weights(spec), rows.raw());
    CHECK(from_hwio(device.get(rows), w.shape).values == dw.values);
    CHECK(device.get(bias).values == dbias.values);
  }
}

TEST_CASE("parts are whole images that fit a cache, and rows enough for a product") {
  const OnednnState as_they_are;
  const OnednnState state = upcasting();
  CHECK(images_of_part(as_they_are, {16, 64, 32, 32}, {16, 64, 32, 32}) == 16);
  CHECK(images_of_part(state, {16, 64, 32, 32}, {16, 64, 32, 32}) == 4);  // of 512 KiB: 5 fit, 4 divide 16
  CHECK(images_of_part(state, {16, 64, 512, 512}, {16, 64, 512, 512}) == 1);
  CHECK(images_of_part(state, {16384, 64}, {16384, 256}) == 2048);
  CHECK(images_of_part(state, {512, 4096}, {512, 4096}) == 256);  // 8 MiB, but fewer rows read the weight too often
  CHECK(images_of_part(state, {509, 4096}, {509, 4096}) == 509);  // a prime
}
