// SPDX-License-Identifier: Apache-2.0
//
// The first layers of ResNet (He et al. 2016), torchvision's names: a convolution, batch norm with ReLU, and with
// images of ImageNet's size max pooling. Where the backend fuses batch norms the output of the batch norm is never
// stored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "layers/batch_norm2d.h"
#include "layers/conv2d.h"
#include "layers/pooling.h"

namespace convoy {

class ResNetStem final : public Layer {
 public:
  /// spec: of the max pooling; there may be none.
  ResNetStem(const Conv2dSpec& conv, const std::optional<PoolSpec>& spec)
      : conv_(conv, false), norm_(true), spec_(spec) {
    if (spec) pool_.emplace(*spec);
  }

  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
  void backward_weight(Cache& cache) override { conv_.backward_weight(cache); }
  void skip_input_gradient() override { conv_.skip_input_gradient(); }
  [[nodiscard]] std::int64_t input_channels(std::int64_t channels) const override {
    return conv_.input_channels(channels);
  }
  [[nodiscard]] bool is_composite() const override { return true; }
  [[nodiscard]] BatchNorm2d* output_norm() override { return pool_ ? nullptr : norm_.output_norm(); }

 private:
  Conv2d conv_;
  BatchNorm2d norm_;
  std::optional<PoolSpec> spec_;
  std::optional<MaxPool2d> pool_;
};

}  // namespace convoy
