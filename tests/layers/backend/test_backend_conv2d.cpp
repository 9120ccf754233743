// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of the CPU backend and their gradients against float64, in float32 and bfloat16, over the shapes for
// which they go different ways; the columns and spread pixels of which some are made.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/backend/onednn/conv/col2im.h"
#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/conv/pointwise_conv2d.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/error.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

// Whole tiles of channels and none; odd sizes, so that the last rows or columns have no output or no input.
const std::vector<ConvCase> kCases{
    {{16, 32, 1, 1, 0}, 3, 5, 4},     {{32, 16, 1, 2, 0}, 2, 7, 6},    {{48, 64, 1, 2, 0}, 1, 1, 3},
    {{16, 16, 1, 3, 0}, 2, 8, 7},     {{16, 16, 1, 1, 1}, 2, 3, 4},    {{128, 16, 3, 1, 1}, 3, 4, 5},
    {{128, 32, 3, 2, 1}, 2, 7, 6},    {{144, 16, 5, 1, 2}, 1, 3, 3},   {{128, 16, 3, 2, 0}, 2, 6, 9},
    {{128, 16, 3, 1, 1}, 6, 32, 9},   {{16, 16, 3, 1, 1}, 2, 5, 5},    {{3, 24, 7, 2, 3}, 2, 9, 11},
    {{20, 12, 1, 1, 0}, 2, 3, 3},     {{128, 32, 3, 1, 0}, 2, 5, 6},   {{128, 16, 3, 1, 2}, 2, 4, 3},
    {{128, 48, 5, 1, 1}, 1, 6, 7},    {{96, 80, 1, 1, 0}, 2, 9, 8},    {{48, 96, 1, 1, 0}, 3, 7, 7},
    {{72, 64, 1, 2, 0}, 4, 13, 12},   {{40, 136, 1, 3, 0}, 8, 14, 15}, {{64, 512, 3, 2, 1}, 5, 7, 8},
    {{72, 520, 3, 3, 0}, 12, 20, 19}, {{48, 64, 3, 1, 1}, 8, 16, 16},  {{64, 48, 3, 1, 0}, 2, 18, 14},
    {{64, 64, 3, 1, 2}, 5, 6, 7},
};

// Rectangular kernels, strides and paddings; groups of several channels, of one input channel each (depthwise), of more
// outputs than inputs; sizes that fill vectors and that do not.
const std::vector<ConvCase> kOtherCases{
    {{16, 32, {3, 1}, 1, {1, 0}}, 2, 6, 5},
    {{16, 16, {1, 5}, {1, 2}, {0, 2}}, 3, 4, 11},
    {{3, 8, {5, 3}, {2, 1}, {2, 0}}, 2, 9, 7},
    {{64, 64, {3, 2}, {1, 2}, {2, 1}}, 2, 7, 8},
    {{48, 48, 3, {2, 1}, 1}, 2, 7, 7},
    {{32, 64, 1, {1, 2}, 0}, 2, 5, 6},
    {{32, 32, 3, 1, 1, 4}, 2, 6, 5},
    {{64, 64, 3, 2, 1, 64}, 2, 7, 8},
    {{24, 24, 3, 1, 1, 24}, 3, 5, 5},
    {{12, 24, {1, 3}, 1, {0, 1}, 12}, 2, 4, 6},
    {{20, 12, 3, 1, 0, 4}, 2, 6, 6},
    {{64, 128, 1, 1, 0, 2}, 2, 5, 5},
    {{6, 9, {3, 2}, {2, 1}, {1, 0}, 3}, 1, 7, 6},
    {{64, 64, 1, 2, 0, 4}, 2, 6, 6},
};

void check_case(const ConvCase& c, DType dtype, int threads) {
  const Conv2dSpec& s = c.spec;
  CAPTURE(s.in_channels);
  CAPTURE(s.kernel.str());
  CAPTURE(s.stride.str());
  CAPTURE(s.padding.str());
  CAPTURE(s.groups);
  CAPTURE(c.images);
  Device device(threads, dtype);
  OnednnBackend& backend = device.backend;
  Array x = uniform({c.images, s.in_channels, c.height, c.width}, 1);
  Array w = uniform(s.weight_shape(), 2);
  const Tensor input = device.put(x, dtype);
  device.put(w, dtype);  // rounded as the copies of the weight will be
  const ImportedWeight imported(backend, backend.conv2d_layout(s, c.input()), w);
  const Array y = conv2d(s, x, w);
  Array dy = uniform(y.shape, 3);
  const Tensor gradient = device.put(dy, dtype);
  Conv2dGradients expected = conv2d_backward(s, dy, x, w);

  // Sums of n products of values up to 1 in float32: at most n roundings of sums up to n, in practice under a hundredth
  // of that; the result is rounded once to its type.
  const auto sums = [](double n) { return n * n * 0x1p-24 / 16 + 1e-6; };
  const auto inputs = static_cast<double>(s.in_channels / s.groups * s.kernel.area());
  const auto outputs = static_cast<double>(s.out_channels / s.groups * s.kernel.area());
  const Tensor output = device.spoiled(y.shape, dtype);
  backend.run(ops::Conv2dForward{s, input, imported.weight, nullptr, output});
  check_close(device.get(output), y, rounding(dtype), sums(inputs), "y");
  const Tensor dx = device.spoiled(x.shape, dtype);
  backend.run(ops::Conv2dBackwardInput{s, gradient, imported.weight, dx});
  check_close(device.get(dx), expected.dx, rounding(dtype), sums(outputs), "dx");
  // Added to itself: one more rounding to the type, of the result of two equal terms, which is none.
  const Tensor beside = device.spoiled(x.shape, dtype);
  backend.run(ops::Conv2dBackwardInput{s, gradient, imported.weight, beside, dx});
  backend.run(ops::Conv2dBackwardInput{s, gradient, imported.weight, dx, dx});
  for (double& value : expected.dx.values) value *= 2;
  check_close(device.get(dx), expected.dx, rounding(dtype), 2 * sums(outputs), "dx added to dx");
  check_close(device.get(beside), expected.dx, rounding(dtype), 2 * sums(outputs), "dx added to another gradient");
  const double dw_sums = sums(static_cast<double>(c.images * y.shape[2] * y.shape[3]));
  const Tensor dw = device.spoiled({imported.layout->elements()});
  const auto weight_gradient = [&](bool accumulate) {
    backend.run(ops::Conv2dBackwardWeight{s, input, gradient, imported.weight, dw, Tensor(), accumulate});
    return imported.exported(backend, dw);
  };
  const Array once = weight_gradient(false);
  check_close(once, expected.dweight, 0x1p-24, dw_sums, "dw");
  Array twice = expected.dweight;
  for (double& value : twice.values) value *= 2;
  check_close(weight_gradient(true), twice, 0x1p-23, 2 * dw_sums, "dw added to dw");
  CHECK(weight_gradient(false).values == once.values);  // the same bits again

  Array shift = uniform({s.out_channels}, 8), moved = y, sum(shift.shape);
  Weight bias;
  bias.master = bias.compute = bias.backward = device.put(shift);
  const std::int64_t pixels = y.shape[2] * y.shape[3];
  for (std::size_t i = 0; i < moved.values.size(); ++i) {
    const auto channel = i / static_cast<std::size_t>(pixels) % static_cast<std::size_t>(s.out_channels);
    moved.values[i] += shift.values[channel];
    sum.values[channel] += dy.values[i];
  }
  backend.run(ops::Conv2dForward{s, input, imported.weight, &bias, output});
  check_close(device.get(output), moved, rounding(dtype), sums(inputs + 1), "y with a bias");
  const Tensor dbias = device.spoiled(shift.shape);
  backend.run(ops::Conv2dBackwardWeight{s, input, gradient, imported.weight, dw, dbias, false});
  check_close(imported.exported(backend, dw), expected.dweight, 0x1p-24, dw_sums, "dw beside dbias");
  check_close(device.get(dbias), sum, 0x1p-24, dw_sums, "dbias");
  backend.run(ops::Conv2dBackwardWeight{s, input, gradient, imported.weight, dw, dbias, true});
  for (double& value : sum.values) value *= 2;
  check_close(device.get(dbias), sum, 0x1p-23, 2 * dw_sums, "dbias added to dbias");
}

}  // namespace

TEST_CASE("conv2d and its gradients in float32") {
  for (const ConvCase& c : kCases) check_case(c, DType::kF32, 2);
}

TEST_CASE("conv2d and its gradients in bfloat16") {
  for (const ConvCase& c : kCases) {
    for (const int threads : {1, 2}) check_case(c, DType::kBF16, threads);
  }
}

TEST_CASE("rectangular and grouped convolutions and their gradients") {
  for (const ConvCase& c : kOtherCases) {
    check_case(c, DType::kF32, 2);
    check_case(c, DType::kBF16, 1);
  }
}

TEST_CASE("a weight gradient as a product over columns") {
  for (const ConvCase& c : kCases) {
    Device device(2);
    OnednnState state;
    Array x = uniform({c.images, c.spec.in_channels, c.height, c.width}, 4);
    const Array w(c.spec.weight_shape());
    Array dy = uniform(conv2d(c.spec, x, w).shape, 5);
    const Tensor input = device.put(x), gradient = device.put(dy);
    const Tensor dw = device.spoiled({w.shape.size()});
    const auto product = make_im2col_gradient(state, c.spec, x.shape, DType::kF32);
    product->run(state, device.backend, input, gradient, dw, Tensor());
    const Array actual = from_hwio(device.get(dw), w.shape), expected = conv2d_backward(c.spec, dy, x, w).dweight;
    const double n = static_cast<double>(dy.shape[0] * dy.shape[2] * dy.shape[3]);
    check_close(actual, expected, 0x1p-24, n * n * 0x1p-24 / 16 + 1e-6, "dw");
    CHECK_THROWS_AS(product->run(state, device.backend, input, gradient, dw, dw), Error);
  }
}

TEST_CASE("an input gradient as a product over columns") {
  for (const ConvCase& c : kCases) {
    Device device(2);
    OnednnState state;
    const Array x(Shape{c.images, c.spec.in_channels, c.height, c.width});
    Array w = uniform(c.spec.weight_shape(), 6);
    Array dy = uniform(conv2d(c.spec, x, w).shape, 7);
    const Tensor gradient = device.put(dy);
    device.put(w);  // rounded to float32
    Array rows = to_hwio(w);
    const Tensor native = device.put(rows), dx = device.spoiled(x.shape);
    make_col2im_backward(state, c.spec, x.shape, DType::kF32)
        ->run(state, device.backend, gradient, native.raw(), nullptr, dx);
    const double n = static_cast<double>(c.spec.out_channels * c.spec.kernel.area());
    check_close(device.get(dx), conv2d_backward(c.spec, dy, x, w).dx, 0x1p-24, n * n * 0x1p-24 / 16 + 1e-6, "dx");
  }
}

TEST_CASE("spread pixels lie a stride apart, with zeros between them") {
  Device device(1, DType::kF32);
  const std::vector<std::uint16_t> values{1, 2, 3, 4, 5, 6, 7, 8};  // 2 images of 1 x 2 pixels of 2 channels
  const Tensor packed = device.backend.tensor({2, 2, 1, 2}, DType::kBF16);
  device.backend.copy_from_host(values.data(), packed);
  const Tensor x = device.backend.tensor({2, 2, 2, 3}, DType::kBF16);
  std::vector<std::uint16_t> spread(static_cast<std::size_t>(x.size()), 99);
  device.backend.copy_from_host(spread.data(), x);
  spread_pixels(packed, 2, x);
  device.backend.copy_to_host(x, spread.data());
  CHECK(spread == std::vector<std::uint16_t>{1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 5, 6, 0, 0, 7, 8, 0, 0, 0, 0, 0, 0});
}
