// SPDX-License-Identifier: Apache-2.0
//
// What the operations of a backend are made of: specs, weights, and the roles of operands. The operations themselves
// are in *_operations.h, the list of them in operations.h.
//
// An operation is a struct with
//   kName     its name in profiles and messages;
//   visit(v)  the same operation with each operand passed through a visitor: v.in() for what is read, v.out() for what
//             is set, v.in_out() for what is read and changed, v.gradient() for what is set or, with accumulate, added
//             to; v.mask() for a ReLU mask that the backend makes. Operands that are read come first;
//   detail()  its shapes, for people; the default is the shape of its first operand;
//   flops()   its floating-point operations; a multiply-add counts as two. The default is 0: memory bounds its time.
//
// Activations have the compute type of the backend. Parameters, gradients of parameters, statistics and optimizer state
// are float32. An operation may have parts: another operation as prologue, which sets what it reads, or as epilogue,
// which reads what it sets. A backend fuses them (Backend::fuses) or runs them one after the other
// (Backend::run_apart). Tensors of rank 4 are [N, C, H, W] in shape and channels-last in memory. A tensor that an
// operation can do without is empty, a weight is null.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "layers/base/size2d.h"
#include "layers/base/tensor.h"

namespace convoy {

/// The window of a convolution or a pooling, without dilation.
struct Window2d {
  Size2d kernel = 1, stride = 1, padding = 0;
  [[nodiscard]] std::int64_t output_height(std::int64_t height) const {
    return (height + 2 * padding.height - kernel.height) / stride.height + 1;
  }
  [[nodiscard]] std::int64_t output_width(std::int64_t width) const {
    return (width + 2 * padding.width - kernel.width) / stride.width + 1;
  }
  /// Whether the window fits into an image [N, C, H, W] with its padding.
  [[nodiscard]] bool fits(const Shape& x) const {
    return x[2] + 2 * padding.height >= kernel.height && x[3] + 2 * padding.width >= kernel.width;
  }
  auto operator<=>(const Window2d&) const = default;
};

/// A 2-d convolution without dilation; weight [out, in / groups, kernel height, kernel width]. Each of the groups of
/// output channels sees its own group of input channels.
struct Conv2dSpec : Window2d {
  Conv2dSpec() = default;
  Conv2dSpec(std::int64_t in, std::int64_t out, Size2d kernel_ = 1, Size2d stride_ = 1, Size2d padding_ = 0,
             std::int64_t groups_ = 1)
      : Window2d{kernel_, stride_, padding_}, in_channels(in), out_channels(out), groups(groups_) {}

  std::int64_t in_channels = 0, out_channels = 0;
  std::int64_t groups = 1;
  [[nodiscard]] Shape output_shape(const Shape& x) const {
    return {x[0], out_channels, output_height(x[2]), output_width(x[3])};
  }
  [[nodiscard]] Shape weight_shape() const { return {out_channels, in_channels / groups, kernel.height, kernel.width}; }
  /// One group, and squares only: what most algorithms are for.
  [[nodiscard]] bool is_plain() const {
    return groups == 1 && kernel.is_square() && stride.is_square() && padding.is_square();
  }
  bool operator==(const Conv2dSpec&) const = default;
};

/// A pooling window.
struct PoolSpec : Window2d {
  PoolSpec() : Window2d{2, 2, 0} {}
  PoolSpec(Size2d kernel_, Size2d stride_, Size2d padding_ = 0) : Window2d{kernel_, stride_, padding_} {}
  [[nodiscard]] Shape output_shape(const Shape& x) const {
    return {x[0], x[1], output_height(x[2]), output_width(x[3])};
  }
  /// Throws a usage error unless places of the window fit into a byte and it always meets the image.
  void check() const;
  bool operator==(const PoolSpec&) const = default;
};

/// How a backend stores one parameter in its flat buffers. `elements` may exceed shape.size(): the padding is zero and
/// stays zero under every optimizer.
class WeightLayout {
 public:
  WeightLayout(const Shape& shape, std::int64_t elements) : shape_(shape), elements_(elements) {}
  virtual ~WeightLayout() = default;
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }

 private:
  Shape shape_;
  std::int64_t elements_;
};

/// A parameter as operations see it.
struct Weight {
  Tensor master;    ///< float32 [layout->elements()], a view of the flat parameter buffer
  Tensor compute;   ///< the same as forward operations read it; shares `master`'s memory where it can
  Tensor backward;  ///< the same as input gradients read it; shares the memory of either where it can
  const WeightLayout* layout = nullptr;
};

/// Floats: in flat buffers parameters start on multiples of it, which are cache lines.
inline constexpr std::int64_t kParameterAlignment = 16;

/// A range of the flat buffers that belongs to one parameter.
struct Segment {
  std::int64_t offset, elements;
  bool adapt;  ///< LARS, LAMB: whether the trust ratio applies, and LARS's weight decay (not for biases and norms)
};

}  // namespace convoy

namespace convoy::ops {

/// The roles of operands. They refer to what the caller holds while run() runs.
using In = const Tensor&;     ///< read
using Out = const Tensor&;    ///< set
using InOut = const Tensor&;  ///< read and changed

/// An operand that is left out.
[[nodiscard]] inline const Tensor& none() {
  static const Tensor empty;
  return empty;
}

/// Visits a part of an operation, its prologue or epilogue; null stays null. The visitor holds the result.
template <class V, class Part>
const Part* visit_part(V& v, const Part* part) {
  return part != nullptr ? &std::get<std::optional<Part>>(v.parts).emplace(part->visit(v)) : nullptr;
}

/// "3x3 64 -> 128 /2, [16, 64, 32, 32]"
[[nodiscard]] std::string conv2d_detail(const Conv2dSpec& spec, const Shape& input);
/// "512 -> 10, batch 16". y: [N, out].
[[nodiscard]] std::string linear_detail(const Weight& w, const Tensor& y);

/// Of any of the three products of a convolution with output y [N, out, H, W]: 2 N H W out in k^2.
[[nodiscard]] double conv2d_flops(const Conv2dSpec& spec, const Tensor& y);
/// Of any of the three products of a linear layer with output y [N, out] and weight [out, in].
[[nodiscard]] double linear_flops(const Weight& w, const Tensor& y);

}  // namespace convoy::ops
