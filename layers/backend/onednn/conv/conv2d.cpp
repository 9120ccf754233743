// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of the CPU backend: oneDNN's direct algorithm on channels-last activations, but where something else is
// faster, by rules of shape alone: a choice by timing could change the last bits from run to run. The weight formats
// are chosen once, when the layer is built; a direction that wants another at another batch size converts into it.
#include <cstdint>
#include <memory>
#include <utility>

#include "layers/backend/onednn/conv/bias_gradient.h"
#include "layers/backend/onednn/conv/col2im.h"
#include "layers/backend/onednn/conv/direct_conv2d.h"
#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/conv/pixel_gradient.h"
#include "layers/backend/onednn/conv/pointwise_conv2d.h"
#include "layers/backend/onednn/conv/row_product.h"
#include "layers/backend/onednn/conv/row_product_bf16.h"
#include "layers/backend/onednn/conv/transposed_conv2d.h"
#include "layers/backend/onednn/conv/upcast.h"
#include "layers/backend/onednn/conv/winograd.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/onednn_state.h"

namespace convoy {

namespace {

using dnnl::memory;

const OnednnWeightLayout& layout_of(const Weight& w) { return static_cast<const OnednnWeightLayout&>(*w.layout); }

WeightedPlan& plan_for(OnednnState& state, const Conv2dSpec& s, const Shape& x, const Weight& w, bool bias) {
  return state
      .plans[{0, s.in_channels, s.out_channels, s.groups, s.kernel.height, s.kernel.width, s.stride.height,
              s.stride.width, s.padding.height, s.padding.width, x[0], x[2], x[3], bias, layout_of(w).winograd}];
}

Conv2dSpec without_stride(Conv2dSpec spec) {
  spec.stride = 1;
  return spec;
}

// Of the pixels of images x that a window of one pixel looks at.
Shape pixels_shape(const Conv2dSpec& spec, const Shape& x) {
  return {x[0], x[1], spec.output_height(x[2]), spec.output_width(x[3])};
}

// A strided window of one pixel, which is one without stride over the pixels that it looks at.
bool skips_pixels(const Conv2dSpec& s) { return s.is_plain() && s.kernel == 1 && s.stride != 1 && s.padding == 0; }

// Forward and for the weight gradient it goes over those packed where they are a linear layer's rows, and for channels
// that fill no vectors: oneDNN 2.6's strided kernels for AVX2 write beyond their scratchpad there.
bool over_packed_pixels(const Conv2dSpec& s, bool rows) { return skips_pixels(s) && (rows || s.in_channels % 16 != 0); }

// The images of x that go through a convolution at a time.
Shape part_of(const OnednnState& state, const Conv2dSpec& spec, const Shape& x) {
  return x.with_batch(images_of_part(state, x, spec.output_shape(x)));
}

// The side of the tiles by which a convolution of x goes, or 0. Its products are in float32 for bfloat16 activations,
// too. That pays for tiles of 4x4, which take a quarter of them: bfloat16's vector instructions do twice as many at a
// time as float32's.
std::int64_t winograd_of(const OnednnState& state, const Conv2dSpec& spec, const Shape& x, DType compute) {
  const bool f32 = compute == DType::kF32;
  if (!(f32 ? state.rules.winograd : state.rules.winograd_bf16)) return 0;
  const std::int64_t m = winograd_side(spec, x);
  return f32 || m == 4 ? m : 0;
}

// Strided float32 windows that im2col is for: a tap of few channels is not worth gathering.
bool suits_strided_im2col(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  return compute == DType::kF32 && state.rules.im2col && s.is_plain() && s.kernel != 1 && s.stride != 1 &&
         s.in_channels >= 64;
}

// All directions of those: oneDNN 2.6's strided kernels to 512 channels and more lose (ResNet-50's at 8x8 and a batch
// of 16: forward 31 ms against 14, weight gradient 44 against 16), those to 256 win with AVX-512.
bool all_by_im2col(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  const bool narrow = state.rules.im2col_narrow && has_own_row_product(s.in_channels, s.out_channels);
  return suits_strided_im2col(state, s, compute) && (narrow || s.out_channels >= 512);
}

// bfloat16 convolutions that im2col is for: of whole tiles of channels, and a tap of few channels is not worth
// gathering (ResNet-50's 64 in a 3x3 window: 7.9 ms against 5.0; by products over pixels ResNet-18's 28 against 26).
bool suits_bf16_im2col(const Conv2dSpec& s, DType compute) {
  return compute == DType::kBF16 && s.is_plain() && s.in_channels % 16 == 0 && s.out_channels % 16 == 0 &&
         (s.kernel == 1 || s.in_channels >= 128);
}

// Whether the weight gradient goes by products over pixels in place of those over columns, or of oneDNN's.
bool gradient_by_pixels(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  if (compute == DType::kF32) {
    const bool wanted = s.kernel == 1 ? state.rules.row_gradient_f32 : state.rules.pixel_gradient_f32;
    return wanted && has_pixel_gradient(s);
  }
  return state.rules.pixel_gradient && native_bf16();
}

// On matrix units oneDNN 2.6's own gradients reach a fifth of a matrix product's speed, 3.13's a half. By AVX512-BF16
// its weight gradients reach from a half (3x3 windows of stride 2 over 512 channels, on Zen 4: 12.3 ms against 6.3) to
// nine tenths (1x1).
bool gradient_by_im2col(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  if (compute == DType::kF32 && gradient_by_pixels(state, s, compute)) return true;
  return all_by_im2col(state, s, compute) || (state.rules.im2col_bf16_weight && suits_bf16_im2col(s, compute));
}

// Forward alone, of fewer output channels, too, where the weight lies as im2col reads it: on AMD's AVX-512 oneDNN 2.6's
// strided kernels reach half of a matrix product's speed.
bool forward_by_im2col(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  return all_by_im2col(state, s, compute) ||
         (suits_strided_im2col(state, s, compute) && gradient_by_pixels(state, s, compute));
}

bool input_by_col2im(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  return all_by_im2col(state, s, compute) || (state.rules.im2col_bf16_input && suits_bf16_im2col(s, compute));
}

// The input gradient goes as a convolution of dy, whose weight is turned.
bool by_transposed(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  return input_by_col2im(state, s, compute) && has_transposed_conv2d(s);
}

// oneDNN 2.6's bfloat16 kernels for AVX512-BF16 sum a window of one pixel wrongly over an odd number of output channels
// (5 -> 3 over 6x5 pixels: 0.8 relative).
bool wrong_pointwise_gradient(const Conv2dSpec& s, DType compute) {
  return compute == DType::kBF16 && s.is_plain() && s.kernel == 1 && s.out_channels % 2 != 0;
}

// The input gradient is computed for those pixels alone, without the stride.
bool by_pixels(const OnednnState& state, const Conv2dSpec& s, DType compute, bool rows) {
  if (over_packed_pixels(s, rows) || (skips_pixels(s) && by_own_rows_bf16(state, s))) return true;
  return skips_pixels(s) && by_transposed(state, without_stride(s), compute);
}

std::unique_ptr<Direction> make_forward(OnednnState& state, const Conv2dSpec& spec, const Shape& x, DType compute,
                                        const OnednnWeightLayout& layout, bool bias) {
  if (layout.winograd > 0) return make_winograd(spec, x, layout.winograd, false);
  if (by_own_rows_bf16(state, spec)) return make_row_product_bf16(spec, false);
  const Shape part = part_of(state, spec, x);
  auto forward = forward_by_im2col(state, spec, compute)
                     ? make_im2col_forward(state, spec, part)
                     : make_direct_forward(state, spec, part, compute, layout.compute, bias);
  return in_parts(state, std::move(forward), part[0]);
}

// How it reads the weight of a convolution of x that goes neither by Winograd's products nor as a linear layer.
memory::desc forward_format(OnednnState& state, const Conv2dSpec& spec, const Shape& x, DType compute,
                            const memory::desc& native) {
  if (by_own_rows_bf16(state, spec)) return make_row_product_bf16(spec, false)->weights();
  if (forward_by_im2col(state, spec, compute)) return native;
  return direct_forward_format(state, spec, x, compute, native);
}

std::unique_ptr<Direction> make_library_backward_input(OnednnState& state, const Conv2dSpec& spec, const Shape& dx,
                                                       DType compute) {
  if (by_own_rows_bf16(state, spec)) return make_row_product_bf16(spec, true);
  if (by_transposed(state, spec, compute)) return make_transposed_conv2d(state, spec, dx, compute);
  if (input_by_col2im(state, spec, compute) || wrong_pointwise_gradient(spec, compute)) {
    return make_col2im_backward(state, spec, dx, compute);
  }
  return make_direct_backward_input(state, spec, dx, compute);
}

// winograd: the side of tiles, or 0.
std::unique_ptr<Direction> make_backward_input(OnednnState& state, const Conv2dSpec& spec, const Shape& dx,
                                               DType compute, std::int64_t winograd) {
  if (winograd > 0) return make_winograd(spec, dx, winograd, true);
  const Shape part = part_of(state, spec, dx);
  return in_parts(state, make_library_backward_input(state, spec, part, compute), part[0]);
}

std::unique_ptr<WeightGradient> make_gradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x, DType compute,
                                              bool bias) {
  if (!gradient_by_im2col(state, spec, compute)) return make_direct_gradient(state, spec, x, compute, bias);
  return with_bias_gradient(gradient_by_pixels(state, spec, compute) ? make_pixel_gradient(spec, x, compute)
                                                                     : make_im2col_gradient(state, spec, x, compute));
}

std::unique_ptr<WeightGradient> make_backward_weight(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                                     DType compute, std::int64_t winograd, bool bias) {
  if (winograd > 0) return with_bias_gradient(make_winograd_gradient(spec, x, winograd));
  const Shape part = part_of(state, spec, x);
  return in_parts(state, make_gradient(state, spec, part, compute, bias), part[0]);
}

// The gradient of the pixels of dx that a strided window of one pixel looks at.
Tensor pixels_gradient(Backend& backend, const Conv2dSpec& spec, const Tensor& dy, const Weight& w, const Tensor& dx) {
  Tensor packed = backend.tensor(pixels_shape(spec, dx.shape()), dx.dtype());
  backend.run(ops::Conv2dBackwardInput{without_stride(spec), dy, w, packed});
  return packed;
}

}  // namespace

std::unique_ptr<WeightLayout> OnednnBackend::conv2d_layout(const Conv2dSpec& spec, const Shape& images) {
  if (over_packed_pixels(spec, false)) return conv2d_layout(without_stride(spec), pixels_shape(spec, images));
  const DType compute = state_->products;
  const Shape input = part_of(*state_, spec, images);
  const Shape shape = spec.weight_shape();
  if (const std::int64_t m = winograd_of(*state_, spec, images, compute); m > 0) {
    auto layout = std::make_unique<OnednnWeightLayout>(shape, im2col_weights(spec), winograd_weights(spec, m, false),
                                                       winograd_weights(spec, m, true));
    layout->winograd = m;
    return layout;
  }
  if (state_->rules.pointwise_gemm && has_row_product(spec, images, compute)) {
    const Shape y = spec.output_shape(images);
    const auto linear = linear_layout(spec.in_channels, spec.out_channels, y[0] * y[2] * y[3]);
    const auto& md = static_cast<const OnednnWeightLayout&>(*linear);
    return std::make_unique<OnednnWeightLayout>(shape, md.native, md.compute, md.backward);
  }
  if (all_by_im2col(*state_, spec, compute)) {
    const memory::desc native = im2col_weights(spec);
    return std::make_unique<OnednnWeightLayout>(shape, native, native, native);
  }
  const memory::desc native = gradient_by_im2col(*state_, spec, compute)
                                  ? im2col_weights(spec)
                                  : direct_gradient_format(*state_, spec, input, compute);
  const memory::desc forward = forward_format(*state_, spec, input, compute, native);
  const Conv2dSpec dense = by_pixels(*state_, spec, compute, false) ? without_stride(spec) : spec;
  const Shape dx = dense.stride == spec.stride ? input : pixels_shape(spec, input);
  const memory::desc backward = make_library_backward_input(*state_, dense, dx, compute)->weights();
  const bool turned = spec.kernel != 1 && by_transposed(*state_, spec, compute);
  return std::make_unique<OnednnWeightLayout>(shape, native, forward, backward, turned);
}

void OnednnBackend::run(const ops::Conv2dForward& op) {
  if (run_apart(op)) return;
  const OnednnWeightLayout& layout = layout_of(op.w);
  if (over_packed_pixels(op.spec, layout.of_rows())) {
    return run(ops::Conv2dForward{without_stride(op.spec), packed_pixels(*this, op.spec, op.x), op.w, op.bias, op.y});
  }
  if (layout.of_rows()) return run(ops::LinearForward{as_rows(op.x), op.w, op.bias, false, as_rows(op.y)});
  auto& forward = plan_for(*state_, op.spec, op.x.shape(), op.w, op.bias != nullptr).forward;
  if (!forward || forward->weights() != layout.compute) {  // a layer built for another size may have its own format
    forward = make_forward(*state_, op.spec, op.x.shape(), state_->products, layout, op.bias != nullptr);
  }
  forward->run(*state_, *this, op.x, op.w.compute.raw(), op.bias != nullptr ? op.bias->master.raw() : nullptr, op.y);
}

void OnednnBackend::run(const ops::Conv2dBackwardInput& op) {
  if (run_apart(op)) return;
  if (op.residual) return run_with_residual(op);
  if (by_pixels(*state_, op.spec, state_->products, layout_of(op.w).of_rows())) {
    return spread_pixels(pixels_gradient(*this, op.spec, op.dy, op.w, op.dx), op.spec.stride.height, op.dx);
  }
  if (layout_of(op.w).of_rows()) return run(ops::LinearBackwardInput{as_rows(op.dy), op.w, as_rows(op.dx)});
  auto& backward = plan_for(*state_, op.spec, op.dx.shape(), op.w, false).backward_input;
  if (!backward) {
    backward = make_backward_input(*state_, op.spec, op.dx.shape(), state_->products, layout_of(op.w).winograd);
  }
  run_backward_input(*state_, *this, *backward, op.dy, op.w, op.dx);
}

void OnednnBackend::run_with_residual(const ops::Conv2dBackwardInput& op) {
  const bool in_place = op.residual.raw() == op.dx.raw();
  if (!in_place || !by_pixels(*state_, op.spec, state_->products, layout_of(op.w).of_rows())) return add_residual(op);
  add_pixels(pixels_gradient(*this, op.spec, op.dy, op.w, op.dx), op.spec.stride.height, op.dx);
}

void OnednnBackend::run(const ops::Conv2dBackwardWeight& op) {
  if (run_apart(op)) return;
  if (over_packed_pixels(op.spec, layout_of(op.w).of_rows())) {
    return run(ops::Conv2dBackwardWeight{without_stride(op.spec), packed_pixels(*this, op.spec, op.x), op.dy, op.w,
                                         op.dw, op.dbias, op.accumulate});
  }
  if (layout_of(op.w).of_rows())
    return run(ops::LinearBackwardWeight{as_rows(op.x), as_rows(op.dy), op.w, op.dw, op.dbias, op.accumulate});
  const bool bias = static_cast<bool>(op.dbias);
  auto& gradient = plan_for(*state_, op.spec, op.x.shape(), op.w, bias).backward_weight;
  if (!gradient) {
    gradient = make_backward_weight(*state_, op.spec, op.x.shape(), state_->products, layout_of(op.w).winograd, bias);
  }
  run_backward_weight(*state_, *this, *gradient, op.x, op.dy, layout_of(op.w), op.dw, op.dbias, op.accumulate);
}

}  // namespace convoy
