// SPDX-License-Identifier: Apache-2.0
//
// y = x W^T + b, optionally max(0, y) in the same pass. Parameters weight [out, in] and bias [out].
#pragma once

#include "layers/layer.h"

namespace convoy {

class Linear final : public Layer {
 public:
  Linear(std::int64_t out_features, bool bias, bool relu) : out_(out_features), has_bias_(bias), relu_(relu) {}
  /// input [N, in] -> [N, out]. Initialised as torch.nn.Linear: U(-1/sqrt(in), 1/sqrt(in)).
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return {input[0], out_}; }
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
  void backward_weight(Cache& cache) override;

 private:
  std::int64_t out_, in_ = 0;
  bool has_bias_, relu_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
};

}  // namespace convoy
