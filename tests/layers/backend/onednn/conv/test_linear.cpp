// SPDX-License-Identifier: Apache-2.0
//
// Linear layers of whole numbers, and so exact, in bfloat16 but for one rounding: all directions by oneDNN's products
// and by own ones, too few rows to divide between threads, just enough, and numbers that no team divides evenly.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

// A linear layer is a convolution of one pixel.
Shape pixels(std::int64_t rows, std::int64_t channels) { return {rows, channels, 1, 1}; }

class LinearCase {
 public:
  LinearCase(std::int64_t rows, std::int64_t in, std::int64_t out, int threads, DType dtype)
      : rows_(rows), in_(in), out_(out), dtype_(dtype), device_(threads, dtype) {
    bias_.master = bias_.compute = bias_.backward = device_.put(shift_);
    input_ = device_.put(x_, dtype).reshaped({rows, in});
    gradient_ = device_.put(dy_, dtype).reshaped({rows, out});
  }

  void check_forward(bool bias, bool relu) {
    Array y = product_;
    for (std::int64_t n = 0; n < rows_; ++n) {
      for (std::int64_t o = 0; o < out_; ++o) {
        if (bias) y.at(n, o) += shift_.values[static_cast<std::size_t>(o)];
        if (relu && y.at(n, o) < 0) y.at(n, o) = 0;
      }
    }
    const Tensor output = device_.spoiled({rows_, out_}, dtype_);
    device_.backend.run(ops::LinearForward{input_, imported_.weight, bias ? &bias_ : nullptr, relu, output});
    CHECK(device_.get(output).values == rounded(y, dtype_).values);
  }

  void check_backward_input() {
    const Tensor dx = device_.spoiled({rows_, in_}, dtype_);
    device_.backend.run(ops::LinearBackwardInput{gradient_, imported_.weight, dx});
    CHECK(device_.get(dx).values == rounded(gradients_.dx, dtype_).values);
  }

  // Twice: set, and added to that.
  void check_backward_weight(bool bias) {
    const std::vector<double>& expected = gradients_.dweight.values;
    std::vector<double> sums(static_cast<std::size_t>(out_));
    for (std::int64_t n = 0; n < rows_; ++n) {
      for (std::int64_t o = 0; o < out_; ++o) sums[static_cast<std::size_t>(o)] += dy_.at(n, o);
    }
    const Tensor dw = device_.spoiled({imported_.layout->elements()});
    const Tensor dbias = bias ? device_.spoiled({out_}) : Tensor();
    for (const double times : {1.0, 2.0}) {
      device_.backend.run(ops::LinearBackwardWeight{input_, gradient_, imported_.weight, dw, dbias, times > 1.0});
      CHECK(imported_.exported(device_.backend, dw).values == multiplied(expected, times));
      if (bias) CHECK(device_.get(dbias).values == multiplied(sums, times));
    }
  }

 private:
  static std::vector<double> multiplied(std::vector<double> values, double by) {
    for (double& value : values) value *= by;
    return values;
  }

  std::int64_t rows_, in_, out_;
  DType dtype_;
  Device device_;
  Conv2dSpec spec_{in_, out_, 1, 1, 0};
  Array x_ = whole(pixels(rows_, in_), 1), dy_ = whole(pixels(rows_, out_), 2), shift_ = whole({out_}, 3),
        w_ = whole(pixels(out_, in_), 4), product_ = conv2d(spec_, x_, w_);
  Conv2dGradients gradients_ = conv2d_backward(spec_, dy_, x_, w_);
  ImportedWeight imported_{device_.backend, device_.backend.linear_layout(in_, out_, rows_), w_};
  Weight bias_;
  Tensor input_, gradient_;
};

void check_linear(std::int64_t rows, std::int64_t in, std::int64_t out, int threads, DType dtype) {
  CAPTURE(rows);
  CAPTURE(in);
  CAPTURE(out);
  CAPTURE(threads);
  CAPTURE(std::string(dtype_name(dtype)));
  LinearCase c(rows, in, out, threads, dtype);
  c.check_forward(true, false);
  c.check_forward(false, true);
  c.check_backward_input();
  c.check_backward_weight(true);
  c.check_backward_weight(false);
}

}  // namespace

TEST_CASE("linear layers of whole numbers are exact, however their rows are divided") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int threads : {1, 2, 3, 5}) {
      for (const std::int64_t rows : {1, 37, 129, 256, 391}) {
        check_linear(rows, 272, 48, threads, dtype);  // both orders of the weight
        check_linear(rows, 40, 136, threads, dtype);
      }
    }
  }
}

TEST_CASE("wide linear layers of whole numbers are exact") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check_linear(70, 784, 1024, 2, dtype);
    check_linear(70, 1040, 528, 1, dtype);
  }
}
