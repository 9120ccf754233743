// SPDX-License-Identifier: Apache-2.0
//
// Multiplication by a constant, such as a softmax temperature.
#pragma once

#include <string>

#include "layers/layer.h"

namespace convoy {

/// y = factor * x, any shape.
class Scale final : public Layer {
 public:
  explicit Scale(float factor) : factor_(factor) {}
  Shape build(BuildContext& context, const std::string& /*path*/, const Shape& input) override {
    join(context);
    return input;
  }
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return input; }
  Tensor forward(const Tensor& x, Cache& /*cache*/, Mode /*mode*/) override { return scaled(x); }
  Tensor backward_input(const Tensor& dy, Cache& /*cache*/) override { return scaled(dy); }

 private:
  [[nodiscard]] Tensor scaled(const Tensor& x) const {
    Tensor y = output(x.shape());
    backend_->run(ops::Scale{factor_, x, y});
    return y;
  }

  float factor_;
};

}  // namespace convoy
