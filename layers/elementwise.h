// SPDX-License-Identifier: Apache-2.0
//
// Smooth activation functions as layers: tanh, sigmoid, gelu, silu. Any shape, no parameters.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "layers/layer.h"

namespace convoy {

/// y = f(x); torch.nn.Tanh, Sigmoid, GELU or SiLU. Keeps x for the backward.
class Elementwise final : public Layer {
 public:
  explicit Elementwise(ActivationFunction function) : function_(function) {}
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return input; }
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;

 private:
  ActivationFunction function_;
};

template <ActivationFunction kFunction>
struct ElementwiseOptions {
  static constexpr std::string_view kName = activation_name(kFunction);
  template <class Visitor, class Self>
  static void visit(Visitor& /*v*/, Self& /*o*/) {}
  [[nodiscard]] std::unique_ptr<Layer> make() const { return std::make_unique<Elementwise>(kFunction); }
  bool operator==(const ElementwiseOptions&) const = default;
};
using TanhOptions = ElementwiseOptions<ActivationFunction::kTanh>;
using SigmoidOptions = ElementwiseOptions<ActivationFunction::kSigmoid>;
using GeluOptions = ElementwiseOptions<ActivationFunction::kGelu>;
using SiluOptions = ElementwiseOptions<ActivationFunction::kSilu>;

}  // namespace convoy
