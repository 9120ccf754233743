// SPDX-License-Identifier: Apache-2.0
//
// Max pooling, global average pooling, and flattening: layers without parameters that change an image's extent.
#pragma once

#include "layers/layer.h"

namespace convoy {

/// [N, C, H, W] -> [N, C, (H + 2 padding - k) / stride + 1, ...]; torch.nn.MaxPool2d.
class MaxPool2d final : public Layer {
 public:
  explicit MaxPool2d(const PoolSpec& spec) : spec_(spec) {}
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;

 private:
  PoolSpec spec_;
};

/// [N, C, H, W] -> [N, C], the mean over H and W.
class GlobalAvgPool final : public Layer {
 public:
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
};

/// [N, C, H, W] -> [N, C * H * W] in that order (torch.nn.Flatten); [N, F] passes through.
class Flatten final : public Layer {
 public:
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
};

}  // namespace convoy
