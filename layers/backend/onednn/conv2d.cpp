// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of the CPU backend: oneDNN's direct algorithm on channels-last activations, but where something else is
// faster, by rules of shape alone: a choice by timing could change the last bits from run to run. The weight formats
// are chosen once, when the layer is built; a direction that wants another at another batch size converts into it.
#include <string_view>

#include "layers/backend/onednn/column_product.h"
#include "layers/backend/onednn/column_spread.h"
#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/backend/onednn/pointwise_conv2d.h"
#include "layers/backend/onednn/transposed_conv2d.h"
#include "layers/backend/onednn/winograd.h"

namespace convoy {

namespace {

using dnnl::memory;
using Tag = dnnl::memory::format_tag;

struct ConvShapes {
  memory::desc src, dst, any_weights, any_weights_f32, bias_f32;
  dnnl_compat::Window window;
  dnnl::primitive_attr attributes;
};

ConvShapes conv_shapes(const Conv2dSpec& s, const Shape& x, DType compute) {
  const auto type = onednn_type(compute);
  const Shape y = s.output_shape(x);
  const memory::dims weights{s.out_channels, s.in_channels, s.kernel, s.kernel};
  ConvShapes c{memory::desc({x[0], x[1], x[2], x[3]}, type, Tag::nhwc),
               memory::desc({y[0], y[1], y[2], y[3]}, type, Tag::nhwc),
               memory::desc(weights, type, Tag::any),
               memory::desc(weights, memory::data_type::f32, Tag::any),
               memory::desc({s.out_channels}, memory::data_type::f32, Tag::a),
               {{s.stride, s.stride}, {s.padding, s.padding}},
               {}};
  c.attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return c;
}

const OnednnWeightLayout& layout_of(const Weight& w) { return static_cast<const OnednnWeightLayout&>(*w.layout); }

WeightedPlan& plan_for(OnednnState& state, const Conv2dSpec& s, const Shape& x, const Weight& w, bool bias) {
  return state.plans[{0, s.in_channels, s.out_channels, s.kernel, s.stride, s.padding, x[0], x[2], x[3], bias,
                      layout_of(w).winograd, 0}];
}

// In which format the forward direction reads its weight: in float32 the gradient's, which saves a copy, wherever
// oneDNN has a compiled kernel for it (as fast as that of its own choice, within 2 % for the layers of ResNet-50).
memory::desc forward_format(OnednnState& state, const ConvShapes& c, const memory::desc& native,
                            const dnnl::convolution_forward::primitive_desc& chosen) {
  if (dnnl_compat::type_of(native) != dnnl_compat::type_of(c.src)) return chosen.weights_desc();
  const auto direct =
      dnnl_compat::convolution_forward(state.engine, c.src, native, memory::desc(), c.dst, c.window, c.attributes);
  const bool compiled = std::string_view(direct.impl_info_str()).find("jit") != std::string_view::npos;
  return compiled ? native : chosen.weights_desc();
}

// On matrix units oneDNN 2.6's own gradients reach a fifth of a matrix product's speed, 3.13's a half. Whole tiles of
// channels; a tap of few channels is not worth gathering (ResNet-50's 64 in a 3x3 window: 7.9 ms against 5.0). In
// float32 its strided kernels to 512 channels and more lose as well (ResNet-50's at 8x8 and a batch of 16: forward
// 31 ms against 14, weight gradient 44 against 16), those to 256 win.
bool by_columns(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  if (state.direct) return false;
  if (compute == DType::kF32) return s.kernel > 1 && s.stride > 1 && s.in_channels >= 64 && s.out_channels >= 512;
  return has_matrix_units() && s.in_channels % 16 == 0 && s.out_channels % 16 == 0 &&
         (s.kernel == 1 || s.in_channels >= 128);
}

// Forward as well.
bool all_by_columns(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  return compute == DType::kF32 && by_columns(state, s, compute);
}

enum class InputWay { kDirect, kTransposed, kColumns };

InputWay input_way(const OnednnState& state, const Conv2dSpec& s, DType compute) {
  if (!by_columns(state, s, compute)) return InputWay::kDirect;
  return has_transposed_conv2d(s) ? InputWay::kTransposed : InputWay::kColumns;
}

BoundPrimitive bind_backward_input(OnednnState& state, const Conv2dSpec& spec, const Shape& dx, DType compute) {
  const InputWay way = input_way(state, spec, compute);
  if (way == InputWay::kTransposed) return bind_transposed_conv2d(state, spec, dx, compute);
  if (way == InputWay::kColumns) return bind_column_spread(state, spec, dx, compute);
  const ConvShapes c = conv_shapes(spec, dx, compute);
  const auto hint = dnnl_compat::convolution_forward(state.engine, c.src, c.any_weights, memory::desc(), c.dst,
                                                     c.window, c.attributes);
  const auto pd =
      dnnl_compat::convolution_backward_data(state.engine, c.src, c.any_weights, c.dst, c.window, hint, c.attributes);
  return bind_primitive(
      state, dnnl::convolution_backward_data(pd), pd.weights_desc(), pd.scratchpad_desc(),
      {{DNNL_ARG_DIFF_SRC, c.src}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DIFF_DST, c.dst}});
}

BoundPrimitive bind_forward(OnednnState& state, const Conv2dSpec& spec, const Shape& x, DType compute,
                            const memory::desc& weights, bool bias) {
  const ConvShapes c = conv_shapes(spec, x, compute);
  const auto pd = dnnl_compat::convolution_forward(state.engine, c.src, weights, bias ? c.bias_f32 : memory::desc(),
                                                   c.dst, c.window, c.attributes);
  std::vector<std::pair<int, memory::desc>> arguments{
      {DNNL_ARG_SRC, c.src}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, c.dst}};
  if (bias) arguments.emplace_back(DNNL_ARG_BIAS, c.bias_f32);
  return bind_primitive(state, dnnl::convolution_forward(pd), pd.weights_desc(), pd.scratchpad_desc(), arguments);
}

dnnl::convolution_backward_weights::primitive_desc weight_gradient(OnednnState& state, const ConvShapes& c, bool bias) {
  const memory::desc bias_md = bias ? c.bias_f32 : memory::desc();
  const auto hint =
      dnnl_compat::convolution_forward(state.engine, c.src, c.any_weights, bias_md, c.dst, c.window, c.attributes);
  return dnnl_compat::convolution_backward_weights(state.engine, c.src, c.any_weights_f32, bias_md, c.dst, c.window,
                                                   hint, c.attributes);
}

BoundPrimitive bind_weight_gradient(OnednnState& state, const ConvShapes& c, bool bias) {
  const auto pd = weight_gradient(state, c, bias);
  std::vector<std::pair<int, memory::desc>> arguments{
      {DNNL_ARG_SRC, c.src}, {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}, {DNNL_ARG_DIFF_DST, c.dst}};
  if (bias) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, c.bias_f32);
  return bind_primitive(state, dnnl::convolution_backward_weights(pd), pd.diff_weights_desc(), pd.scratchpad_desc(),
                        arguments);
}

}  // namespace

std::unique_ptr<WeightLayout> OnednnBackend::conv2d_layout(const Conv2dSpec& spec, const Shape& input) {
  const Shape shape{spec.out_channels, spec.in_channels, spec.kernel, spec.kernel};
  if (const std::int64_t m = winograd_side(spec, input, compute_); m > 0 && !state_->direct) {
    const memory::desc points = winograd_weights(spec, m);
    auto layout = std::make_unique<OnednnWeightLayout>(shape, ColumnProduct::weights(spec), points, points);
    layout->winograd = m;
    return layout;
  }
  if (!state_->direct && has_row_product(spec, input, compute_)) {
    const Shape y = spec.output_shape(input);
    const auto linear = linear_layout(spec.in_channels, spec.out_channels, y[0] * y[2] * y[3]);
    const auto& md = static_cast<const OnednnWeightLayout&>(*linear);
    return std::make_unique<OnednnWeightLayout>(shape, md.native, md.compute, md.backward);
  }
  if (all_by_columns(*state_, spec, compute_)) {
    const memory::desc native = ColumnProduct::weights(spec);
    return std::make_unique<OnednnWeightLayout>(shape, native, native, native);
  }
  const ConvShapes c = conv_shapes(spec, input, compute_);
  const auto forward = dnnl_compat::convolution_forward(state_->engine, c.src, c.any_weights, memory::desc(), c.dst,
                                                        c.window, c.attributes);
  const memory::desc native = by_columns(*state_, spec, compute_)
                                  ? ColumnProduct::weights(spec)
                                  : weight_gradient(*state_, c, false).diff_weights_desc();
  const memory::desc backward = bind_backward_input(*state_, spec, input, compute_).weights;
  const bool turned = spec.kernel > 1 && input_way(*state_, spec, compute_) == InputWay::kTransposed;
  return std::make_unique<OnednnWeightLayout>(shape, native, forward_format(*state_, c, native, forward), backward,
                                              turned);
}

void OnednnBackend::conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Weight& w, const Weight* bias,
                                   const Tensor& y) {
  if (layout_of(w).of_rows()) return linear_forward(pixel_rows(*this, spec, x), w, bias, false, as_rows(y));
  auto& bound = plan_for(*state_, spec, x.shape(), w, bias != nullptr).forward;
  const OnednnWeightLayout& layout = layout_of(w);
  if (layout.winograd > 0) {
    const TileGrid grid(spec, x.shape(), layout.winograd, false);
    if (!bound) bound = std::make_unique<BoundPrimitive>(bind_winograd(*state_, grid));
    const float* shift = bias != nullptr ? bias->master.data<float>() : nullptr;
    return run_winograd(*state_, *this, *bound, grid, x, w.compute.raw(), shift, y);
  }
  if (bias == nullptr && all_by_columns(*state_, spec, compute_)) {
    if (!bound) bound = std::make_unique<BoundPrimitive>(bind_column_forward(*state_, spec, x.shape(), compute_));
    return run_column_forward(*state_, *this, *bound, spec, x, w.compute.raw(), y);
  }
  if (!bound || bound->weights != layout.compute) {  // a layer that was built for another size may have its own format
    bound = std::make_unique<BoundPrimitive>(
        bind_forward(*state_, spec, x.shape(), compute_, layout.compute, bias != nullptr));
  }
  run_primitive(*state_, *this, *bound,
                {{DNNL_ARG_SRC, x.raw()},
                 {DNNL_ARG_WEIGHTS, w.compute.raw()},
                 {DNNL_ARG_BIAS, bias != nullptr ? bias->master.raw() : nullptr},
                 {DNNL_ARG_DST, y.raw()}});
}

void OnednnBackend::conv2d_backward_input(const Conv2dSpec& spec, const Tensor& dy, const Weight& w, const Tensor& dx) {
  if (layout_of(w).of_rows()) {
    if (spec.stride == 1) return linear_backward_input(as_rows(dy), w, as_rows(dx));
    const Tensor packed = tensor({dx.shape()[0], dx.shape()[1], dy.shape()[2], dy.shape()[3]}, dx.dtype());
    linear_backward_input(as_rows(dy), w, as_rows(packed));
    return spread_pixels(packed, spec.stride, dx);
  }
  auto& bound = plan_for(*state_, spec, dx.shape(), w, false).backward_input;
  if (const std::int64_t m = layout_of(w).winograd; m > 0) {
    const TileGrid grid(spec, dx.shape(), m, true);
    if (!bound) bound = std::make_unique<BoundPrimitive>(bind_winograd(*state_, grid));
    return run_winograd(*state_, *this, *bound, grid, dy, w.backward.raw(), nullptr, dx);
  }
  if (!bound) bound = std::make_unique<BoundPrimitive>(bind_backward_input(*state_, spec, dx.shape(), compute_));
  Tensor copy;
  void* weight = backward_weight_for(*state_, *this, *bound, w, copy);
  switch (input_way(*state_, spec, compute_)) {
    case InputWay::kTransposed: return run_transposed_conv2d(*state_, *this, *bound, spec, dy, weight, dx);
    case InputWay::kColumns: return run_column_spread(*state_, *this, *bound, spec, dy, weight, dx);
    case InputWay::kDirect: break;
  }
  run_primitive(*state_, *this, *bound,
                {{DNNL_ARG_DIFF_DST, dy.raw()}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DIFF_SRC, dx.raw()}});
}

void OnednnBackend::conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& x, const Tensor& dy, const Weight& w,
                                           const Tensor& dw, const Tensor& dbias, bool accumulate) {
  if (layout_of(w).of_rows()) {
    return linear_backward_weight(pixel_rows(*this, spec, x), as_rows(dy), w, dw, dbias, accumulate);
  }
  const bool bias = static_cast<bool>(dbias);
  auto& gradient = plan_for(*state_, spec, x.shape(), w, bias).backward_weight;
  const std::int64_t m = layout_of(w).winograd;
  if (!gradient && !bias && m > 0) {
    gradient = std::make_unique<WinogradGradient>(*state_, spec, x.shape(), m);
  } else if (!gradient && !bias && by_columns(*state_, spec, compute_)) {
    gradient = std::make_unique<ColumnProduct>(*state_, spec, x.shape(), compute_);
  } else if (!gradient) {
    gradient = std::make_unique<PrimitiveGradient>(
        bind_weight_gradient(*state_, conv_shapes(spec, x.shape(), compute_), bias));
  }
  run_backward_weight(*state_, *this, *gradient, x, dy, layout_of(w), dw, dbias, accumulate);
}

}  // namespace convoy
