// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation (Ba et al. 2016) over the channels: of each sample of [N, C] (torch.nn.LayerNorm(C)), and of each
// pixel of each sample of [N, C, H, W] (torchvision's LayerNorm2d of ConvNeXt). Parameters weight [C] and bias [C],
// which start at 1 and 0. Nothing depends on other samples, so microbatches and replicas change no output.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "layers/base/options.h"
#include "layers/layer.h"

namespace convoy {

class LayerNorm final : public Layer {
 public:
  /// epsilon: added to the variance.
  explicit LayerNorm(double epsilon) : epsilon_(static_cast<float>(epsilon)) {}
  /// [N, C] or [N, C, H, W], unchanged.
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return input; }
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
  void backward_weight(Cache& cache) override;

 private:
  float epsilon_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
};

struct LayerNormOptions {
  static constexpr std::string_view kName = "layer_norm";
  double epsilon = 1e-5;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("epsilon", o.epsilon, above(0), "added to the variance");
  }
  [[nodiscard]] std::unique_ptr<Layer> make() const { return std::make_unique<LayerNorm>(epsilon); }
  bool operator==(const LayerNormOptions&) const = default;
};

}  // namespace convoy
