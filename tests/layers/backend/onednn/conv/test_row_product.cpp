// SPDX-License-Identifier: Apache-2.0
//
// Rows of whole numbers times a weight, and so exact sums: both directions, both orders of the weight, numbers of rows
// that fill kernels and blocks and that do not, with a bias and without, any number of threads.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include "layers/backend/onednn/conv/row_product.h"
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

}  // namespace

TEST_CASE("own products of rows of whole numbers are exact, with any number of threads") {
  using Tag = dnnl::memory::format_tag;
  constexpr std::int64_t kIn = 48, kOut = 80;
  for (const std::int64_t rows : {1, 127, 128, 500, 1300}) {
    for (const Tag tag : {Tag::ab, Tag::ba}) {
      for (const int threads : {1, 2, 3}) {
        CAPTURE(rows);
        CAPTURE(tag == Tag::ba);
        CAPTURE(threads);
        REQUIRE(has_own_row_product(kIn, kOut));
        Device device(threads);
        OnednnState state;
        const dnnl::memory::desc format({kOut, kIn}, dnnl::memory::data_type::f32, tag);
        Array w = whole({kOut, kIn}, 1), x = whole({rows, kIn}, 2), dy = whole({rows, kOut}, 3),
              bias = whole({kOut}, 4);
        const auto weight = [&](std::int64_t i, std::int64_t o) {
          return w.values[static_cast<std::size_t>(tag == Tag::ab ? o * kIn + i : i * kOut + o)];
        };
        const Tensor weights = device.put(w), biases = device.put(bias), y = device.spoiled({rows, kOut}),
                     dx = device.spoiled({rows, kIn});
        const auto forward = make_own_row_product(format, false);
        forward->run(state, device.backend, device.put(x), weights.raw(), nullptr, y);
        CHECK(device.get(y).values == product(x, kIn, kOut, {}, weight).values);
        forward->run(state, device.backend, device.put(x), weights.raw(), biases.raw(), y);
        CHECK(device.get(y).values == product(x, kIn, kOut, bias, weight).values);
        make_own_row_product(format, true)->run(state, device.backend, device.put(dy), weights.raw(), nullptr, dx);
        CHECK(device.get(dx).values ==
              product(dy, kOut, kIn, {}, [&](std::int64_t o, std::int64_t i) { return weight(i, o); }).values);
      }
    }
  }
}
