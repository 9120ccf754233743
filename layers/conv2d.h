// SPDX-License-Identifier: Apache-2.0
//
// 2-d convolution (torch.nn.Conv2d without dilation). Parameters weight [out, in / groups, kernel height, kernel width]
// and, if asked for, bias [out].
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "layers/activation.h"
#include "layers/base/options.h"
#include "layers/base/size2d.h"
#include "layers/layer.h"

namespace convoy {

class Conv2d final : public Layer {
 public:
  /// spec.in_channels is taken from the input. one_dimensional: inputs are signals [N, C, 1, L], and the weight is
  /// [out, in / groups, k] in files, as torch.nn.Conv1d's.
  Conv2d(const Conv2dSpec& spec, bool bias, bool one_dimensional = false)
      : spec_(spec), has_bias_(bias), one_dimensional_(one_dimensional) {}
  /// input [N, in, H, W] -> [N, out, (H + 2 padding - k) / stride + 1, ...]. Weights start as torchvision's ResNet:
  /// He et al. 2015, normal, fan_out; a bias starts as torch.nn.Conv2d's, U(-1/sqrt(n), 1/sqrt(n)), n = in / groups *
  /// k.
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override { return forward({x}, cache, mode, {}); }
  /// The same of an activation that may be pending; sets the moments of the output, where there are any.
  Tensor forward(Activation x, Cache& cache, Mode mode, const Moments& moments);
  Tensor backward_input(const Tensor& dy, Cache& cache) override {
    return backward_input(dy, cache, Tensor(), input_norm_);
  }
  /// The same plus residual, the gradient of the input by another path, whose memory it may take. norm: null, or the
  /// batch norm whose output the input is, if this is the whole gradient of that.
  Tensor backward_input(const Tensor& dy, Cache& cache, const Tensor& residual, BatchNorm2d* norm);
  [[nodiscard]] std::int64_t input_channels(std::int64_t /*channels*/) const override {
    return backend_->input_channels(spec_);
  }
  void set_input_norm(BatchNorm2d* norm) override { input_norm_ = norm; }
  void backward_weight(Cache& cache) override;

 private:
  Conv2dSpec spec_;
  bool has_bias_, one_dimensional_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
  BatchNorm2d* input_norm_ = nullptr;
};

/// Size: Size2d of images (torch.nn.Conv2d), std::int64_t of signals [N, C, 1, L] (torch.nn.Conv1d).
template <class Size>
struct ConvOptions {
  using Extent = WindowExtent<Size>;
  static constexpr std::string_view kName = Extent::kOneDimensional ? "conv1d" : "conv2d";
  std::int64_t out_channels = 0;
  Size kernel_size = 0;
  Size stride = 1;
  Size padding = 0;
  std::int64_t groups = 1;
  bool bias = true;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("out_channels", o.out_channels, between(1, 65536).required(), "channels of the output");
    v.key("kernel_size", o.kernel_size, between(1, 1024).required(), Extent::kKernel);
    v.key("stride", o.stride, between(1, 1024), "step of the window; default of pooling: kernel_size");
    v.key("padding", o.padding, between(0, 1024), Extent::kPadding);
    v.key("groups", o.groups, between(1, 65536), "of channels, each with its own convolution");
    v.key("bias", o.bias, anything(), "whether a bias is added");
  }
  [[nodiscard]] std::unique_ptr<Layer> make() const {
    const Conv2dSpec spec(0, out_channels, Extent::window(kernel_size, 1), Extent::window(stride, 1),
                          Extent::window(padding, 0), groups);
    return std::make_unique<Conv2d>(spec, bias, Extent::kOneDimensional);
  }
  bool operator==(const ConvOptions&) const = default;
};
using Conv2dOptions = ConvOptions<Size2d>;
using Conv1dOptions = ConvOptions<std::int64_t>;

}  // namespace convoy
