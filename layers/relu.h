// SPDX-License-Identifier: Apache-2.0
//
// y = max(0, x), any shape. No parameters.
#pragma once

#include <string>
#include <string_view>

#include "layers/layer.h"

namespace convoy {

class Relu final : public Layer {
 public:
  static constexpr std::string_view kName = "relu";
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return input; }
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
};

using ReluOptions = NoOptions<Relu>;

}  // namespace convoy
