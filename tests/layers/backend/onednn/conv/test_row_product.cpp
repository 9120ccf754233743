// SPDX-License-Identifier: Apache-2.0
//
// Rows of whole numbers times a weight, and so exact sums: both directions, both orders of the weight, numbers of rows
// that fill kernels and blocks and that do not, with a bias and without, any number of threads.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "layers/backend/onednn/conv/row_product.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/onednn_state.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

// y [rows, out] of x [rows, in] and the element w(in, out) of the weight, with this bias unless it is empty.
template <class W>
Array product(const Array& x, std::int64_t in, std::int64_t out, const Array& bias, W&& w) {
  const std::int64_t rows = x.shape[0];
  Array y({rows, out});
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = bias.values.empty() ? 0.0 : bias.values[static_cast<std::size_t>(o)];
      for (std::int64_t i = 0; i < in; ++i) sum += x.at(row, i) * w(i, o);
      y.at(row, o) = sum;
    }
  }
  return y;
}

using Tag = dnnl::memory::format_tag;

void check_both_directions(std::int64_t rows, std::int64_t in, std::int64_t out, Tag tag, int threads) {
  CAPTURE(rows);
  CAPTURE(in);
  CAPTURE(tag == Tag::ba);
  CAPTURE(threads);
  REQUIRE(has_own_row_product(in, out));
  Device device(threads);
  OnednnState state;
  const dnnl::memory::desc format({out, in}, dnnl::memory::data_type::f32, tag);
  Array w = whole({out, in}, 1), x = whole({rows, in}, 2), dy = whole({rows, out}, 3), bias = whole({out}, 4);
  const auto weight = [&](std::int64_t i, std::int64_t o) {
    return w.values[static_cast<std::size_t>(tag == Tag::ab ? o * in + i : i * out + o)];
  };
  const Tensor weights = device.put(w), biases = device.put(bias), y = device.spoiled({rows, out}),
               dx = device.spoiled({rows, in});
  const auto forward = make_own_row_product(format, false);
  forward->run(state, device.backend, device.put(x), weights.raw(), nullptr, y);
  CHECK(device.get(y).values == product(x, in, out, {}, weight).values);
  forward->run(state, device.backend, device.put(x), weights.raw(), biases.raw(), y);
  CHECK(device.get(y).values == product(x, in, out, bias, weight).values);
  make_own_row_product(format, true)->run(state, device.backend, device.put(dy), weights.raw(), nullptr, dx);
  CHECK(device.get(dx).values ==
        product(dy, out, in, {}, [&](std::int64_t o, std::int64_t i) { return weight(i, o); }).values);
}

}  // namespace

TEST_CASE("own products of rows of whole numbers are exact, with any number of threads") {
  for (const Tag tag : {Tag::ab, Tag::ba}) {
    for (const int threads : {1, 2, 3}) {
      for (const std::int64_t rows : {1, 127, 128, 500, 1300}) check_both_directions(rows, 48, 80, tag, threads);
    }
    // A weight of more than 4 MiB, some columns of which are taken at a time.
    check_both_directions(5, 512, 2080, tag, 2);
  }
}

// Ranks on CPUs that take different products of rows exchange gradients.
TEST_CASE("own products of rows leave the formats of weights as they are") {
  CpuRules with = this_cpu().rules, without = with;
  with.own_rows = true;
  without.own_rows = false;
  OnednnBackend own(1, DType::kF32, with), library(1, DType::kF32, without);
  const auto native = [](const std::unique_ptr<WeightLayout>& layout) {
    return static_cast<const OnednnWeightLayout&>(*layout).native;
  };
  CHECK((native(own.linear_layout(784, 1024, 256)) == native(library.linear_layout(784, 1024, 256))));
  for (const Conv2dSpec& spec :
       {Conv2dSpec{64, 256, 1, 1, 0}, Conv2dSpec{64, 128, 1, 2, 0}, Conv2dSpec{128, 128, 3, 2, 1}}) {
    const Shape x{16, spec.in_channels, 32, 32};
    CHECK((native(own.conv2d_layout(spec, x)) == native(library.conv2d_layout(spec, x))));
  }
}
