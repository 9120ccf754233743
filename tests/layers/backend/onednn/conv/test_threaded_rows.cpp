// SPDX-License-Identifier: Apache-2.0
//
// Linear layers whose rows are divided between threads, of whole numbers and so exact: too few rows to divide, just
// enough, and numbers that no team divides evenly.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "layers/backend/onednn/conv/threaded_rows.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

// A linear layer is a convolution of one pixel.
Shape pixels(std::int64_t rows, std::int64_t channels) { return {rows, channels, 1, 1}; }

void check_linear(std::int64_t rows, std::int64_t in, std::int64_t out, int threads) {
  CAPTURE(rows);
  CAPTURE(in);
  CAPTURE(threads);
  Device device(threads);
  const Conv2dSpec spec{in, out, 1, 1, 0};
  Array x = whole(pixels(rows, in), 1), dy = whole(pixels(rows, out), 2), shift = whole({out}, 3);
  const Array w = whole(pixels(out, in), 4);
  Array y = conv2d(spec, x, w);
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t o = 0; o < out; ++o) y.at(n, o) += shift.values[static_cast<std::size_t>(o)];
  }
  const auto layout = device.backend.linear_layout(in, out, rows);
  const std::vector<float> host(w.values.begin(), w.values.end());
  Weight weight, bias;
  weight.layout = layout.get();
  weight.master = device.backend.tensor({layout->elements()}, DType::kF32);
  device.backend.import_weight(*layout, host.data(), weight.master);
  device.backend.refresh_compute(weight);
  bias.master = bias.compute = bias.backward = device.put(shift);
  const Tensor input = device.put(x), gradient = device.put(dy);
  const Tensor output = device.spoiled({rows, out}), dx = device.spoiled({rows, in});
  device.backend.run(ops::LinearForward{input.reshaped({rows, in}), weight, &bias, false, output});
  device.backend.run(ops::LinearBackwardInput{gradient.reshaped({rows, out}), weight, dx});
  CHECK(device.get(output).values == y.values);
  CHECK(device.get(dx).values == conv2d_backward(spec, dy, x, w).dx.values);
}

}  // namespace

TEST_CASE("rows are divided where each thread has enough of them") {
  Device device(3);
  CHECK(row_threads(1) == 1);
  CHECK(row_threads(255) == 1);
  CHECK(row_threads(256) == 2);
  CHECK(row_threads(100'000) == 3);
  CHECK(first_row(391, 0, 3) == 0);
  CHECK(first_row(391, 1, 3) == 130);
  CHECK(first_row(391, 3, 3) == 391);
}

TEST_CASE("linear layers of whole numbers are exact, however their rows are divided") {
  for (const int threads : {1, 2, 3, 5}) {
    for (const std::int64_t rows : {129, 256, 391, 641}) {
      check_linear(rows, 272, 48, threads);  // both orders of the weight
      check_linear(rows, 40, 136, threads);
    }
  }
}
