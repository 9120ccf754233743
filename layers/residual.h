// SPDX-License-Identifier: Apache-2.0
//
// The residual blocks of ResNet (He et al. 2016), torchvision's names and variant: y = relu(bn(convs(x)) +
// shortcut(x)), the shortcut being x or a strided 1x1 convolution with batch norm ("downsample"). The last addition and
// ReLU are fused into the last batch norm. Where a block is recomputed its output is not: so it is a unit, and no layer
// within another one (Layer::is_composite()).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "layers/batch_norm2d.h"
#include "layers/conv2d.h"

namespace convoy {

class ResidualBlock final : public Layer {
 public:
  enum class Kind {
    kBasic,       ///< two 3x3; the stride in the first; out = channels
    kBottleneck,  ///< 1x1, 3x3, 1x1; the stride in the 3x3 (v1.5); out = 4 * channels
  };
  static constexpr std::int64_t kExpansion = 4;

  /// channels: torchvision's "planes". A downsample path is made when shape or stride ask for one.
  ResidualBlock(Kind kind, std::int64_t channels, std::int64_t stride)
      : kind_(kind), channels_(channels), stride_(stride) {}

  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override { return propagate(dy, cache, false); }
  void backward_weight(Cache& cache) override;
  Tensor backward(const Tensor& dy, Cache& cache) override { return propagate(dy, cache, true); }
  void skip_input_gradient() override;
  [[nodiscard]] bool is_composite() const override { return true; }
  [[nodiscard]] BatchNorm2d* output_norm() override { return path_.back()->norm.output_norm(); }
  void set_input_norm(BatchNorm2d* norm) override { input_norm_ = norm; }

 private:
  struct ConvNorm {
    Conv2d conv;
    BatchNorm2d norm;
    Activation forward(const Activation& x, const Activation& shortcut, Cache& cache, Mode mode) {
      const Tensor y = conv.forward(x, cache, mode, norm.moments(cache, mode));
      return norm.forward_pending(y, shortcut, cache, mode);
    }
    void backward_weight(Cache& cache) {
      norm.backward_weight(cache);
      conv.backward_weight(cache);
    }
  };
  /// Backward through all paths; with `weights` each layer's weight gradient follows its input gradient.
  Tensor propagate(const Tensor& dy, Cache& cache, bool weights);

  Kind kind_;
  std::int64_t channels_, stride_;
  std::vector<std::unique_ptr<ConvNorm>> path_;
  std::unique_ptr<ConvNorm> downsample_;
  BatchNorm2d* input_norm_ = nullptr;
};

template <ResidualBlock::Kind kKind>
struct BlockOptions {
  static constexpr std::string_view kName = kKind == ResidualBlock::Kind::kBasic ? "basic_block" : "bottleneck";
  std::int64_t channels = 0;  ///< torchvision's "planes"
  std::int64_t stride = 1;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("channels", o.channels, between(1, 65536).required(),
          "width of the block; a bottleneck puts out four times as many");
    v.key("stride", o.stride, between(1, 1024), "step of the window; default of max_pool2d: kernel_size");
  }
  [[nodiscard]] std::unique_ptr<Layer> make() const { return std::make_unique<ResidualBlock>(kKind, channels, stride); }
  bool operator==(const BlockOptions&) const = default;
};
using BasicBlockOptions = BlockOptions<ResidualBlock::Kind::kBasic>;
using BottleneckOptions = BlockOptions<ResidualBlock::Kind::kBottleneck>;

}  // namespace convoy
