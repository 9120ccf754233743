// SPDX-License-Identifier: Apache-2.0
//
// 2-d convolution with a square kernel. Parameters weight [out, in, k, k] and, when asked for, bias [out].
#pragma once

#include "layers/layer.h"

namespace convoy {

class Conv2d final : public Layer {
 public:
  /// spec.in_channels is taken from the input.
  Conv2d(const Conv2dSpec& spec, bool bias) : spec_(spec), has_bias_(bias) {}
  /// input [N, in, H, W] -> [N, out, (H + 2 padding - k) / stride + 1, ...]. Weights start as torchvision's ResNet:
  /// He et al. 2015, normal, fan_out; a bias starts as torch.nn.Conv2d's, U(-1/sqrt(in k k), 1/sqrt(in k k)).
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
  /// backward_input(), added to dx.
  void backward_input_add(const Tensor& dy, Cache& cache, const Tensor& dx);
  void backward_weight(Cache& cache) override;

 private:
  Conv2dSpec spec_;
  bool has_bias_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
};

}  // namespace convoy
