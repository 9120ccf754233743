// SPDX-License-Identifier: Apache-2.0
//
// Max, average and global average pooling, and flattening: layers without parameters that change an image's extent.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "layers/base/options.h"
#include "layers/base/size2d.h"
#include "layers/layer.h"

namespace convoy {

/// [N, C, H, W] -> [N, C, (H + 2 padding - k) / stride + 1, ...]: what layers with a pooling window have in common.
class WindowPool : public Layer {
 public:
  /// layer: its type, for messages.
  WindowPool(const PoolSpec& spec, std::string_view layer) : spec_(spec), layer_(layer) {}
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return spec_.output_shape(input); }

 protected:
  [[nodiscard]] const PoolSpec& spec() const { return spec_; }

 private:
  PoolSpec spec_;
  std::string_view layer_;
};

/// The largest value of each window; torch.nn.MaxPool2d.
class MaxPool2d final : public WindowPool {
 public:
  static constexpr std::string_view kName = "max_pool2d", kName1d = "max_pool1d";
  explicit MaxPool2d(const PoolSpec& spec) : WindowPool(spec, kName) {}
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
};

/// The mean of each window, in which padding counts as zeros; torch.nn.AvgPool2d.
class AvgPool2d final : public WindowPool {
 public:
  static constexpr std::string_view kName = "avg_pool2d", kName1d = "avg_pool1d";
  explicit AvgPool2d(const PoolSpec& spec) : WindowPool(spec, kName) {}
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
};

/// [N, C, H, W] -> [N, C], the mean over H and W.
class GlobalAvgPool final : public Layer {
 public:
  static constexpr std::string_view kName = "global_avg_pool";
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
};

/// [N, C, H, W] -> [N, C], the maximum over H and W, which are at most 15.
class GlobalMaxPool final : public Layer {
 public:
  static constexpr std::string_view kName = "global_max_pool";
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
};

/// [N, C, H, W] -> [N, C * H * W] in that order (torch.nn.Flatten); [N, F] passes through.
class Flatten final : public Layer {
 public:
  static constexpr std::string_view kName = "flatten";
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
};

/// Size: Size2d of images, std::int64_t of signals [N, C, 1, L] (torch.nn.MaxPool1d and AvgPool1d).
template <class PoolLayer, class Size>
struct PoolOptions {
  using Extent = WindowExtent<Size>;
  static constexpr std::string_view kName = Extent::kOneDimensional ? PoolLayer::kName1d : PoolLayer::kName;
  Size kernel_size = 0;
  Size stride = 1;
  Size padding = 0;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("kernel_size", o.kernel_size, between(1, 1024).required(), Extent::kKernel);
    v.fallback(o.stride, o.kernel_size);
    v.key("stride", o.stride, between(1, 1024), "step of the window; default of pooling: kernel_size");
    v.key("padding", o.padding, between(0, 1024), Extent::kPadding);
  }
  [[nodiscard]] std::unique_ptr<Layer> make() const {
    return std::make_unique<PoolLayer>(
        PoolSpec(Extent::window(kernel_size, 1), Extent::window(stride, 1), Extent::window(padding, 0)));
  }
  bool operator==(const PoolOptions&) const = default;
};
using MaxPool2dOptions = PoolOptions<MaxPool2d, Size2d>;
using AvgPool2dOptions = PoolOptions<AvgPool2d, Size2d>;
using MaxPool1dOptions = PoolOptions<MaxPool2d, std::int64_t>;
using AvgPool1dOptions = PoolOptions<AvgPool2d, std::int64_t>;

using GlobalAvgPoolOptions = NoOptions<GlobalAvgPool>;
using GlobalMaxPoolOptions = NoOptions<GlobalMaxPool>;
using FlattenOptions = NoOptions<Flatten>;

}  // namespace convoy
