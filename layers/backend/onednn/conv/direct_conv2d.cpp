// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/conv/direct_conv2d.h"

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/backend/onednn/onednn_state.h"

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
  const Size2d k = s.kernel;
  memory::dims weights{s.out_channels, s.in_channels, k.height, k.width};
  if (s.groups > 1) {
    weights = {s.groups, s.out_channels / s.groups, s.in_channels / s.groups, k.height, k.width};
  }
  return {memory::desc({x[0], x[1], x[2], x[3]}, type, Tag::nhwc),
          memory::desc({y[0], y[1], y[2], y[3]}, type, Tag::nhwc),
          memory::desc(weights, type, Tag::any),
          memory::desc(weights, memory::data_type::f32, Tag::any),
          memory::desc({s.out_channels}, memory::data_type::f32, Tag::a),
          {{s.stride.height, s.stride.width}, {s.padding.height, s.padding.width}},
          user_scratchpad()};
}

dnnl::convolution_backward_weights::primitive_desc weight_gradient(OnednnState& state, const ConvShapes& c, bool bias) {
  const memory::desc bias_md = bias ? c.bias_f32 : memory::desc();
  const auto hint =
      dnnl_compat::convolution_forward(state.engine, c.src, c.any_weights, bias_md, c.dst, c.window, c.attributes);
  return dnnl_compat::convolution_backward_weights(state.engine, c.src, c.any_weights_f32, bias_md, c.dst, c.window,
                                                   hint, c.attributes);
}

}  // namespace

memory::desc direct_forward_format(OnednnState& state, const Conv2dSpec& spec, const Shape& x, DType compute,
                                   const memory::desc& native) {
  const ConvShapes c = conv_shapes(spec, x, compute);
  const auto chosen = dnnl_compat::convolution_forward(state.engine, c.src, c.any_weights, memory::desc(), c.dst,
                                                       c.window, c.attributes);
  if (dnnl_compat::type_of(native) != onednn_type(compute)) return chosen.weights_desc();
  const auto direct =
      dnnl_compat::convolution_forward(state.engine, c.src, native, memory::desc(), c.dst, c.window, c.attributes);
  const bool compiled = std::string_view(direct.impl_info_str()).find("jit") != std::string_view::npos;
  return compiled ? native : chosen.weights_desc();
}

memory::desc direct_gradient_format(OnednnState& state, const Conv2dSpec& spec, const Shape& x, DType compute) {
  return weight_gradient(state, conv_shapes(spec, x, compute), false).diff_weights_desc();
}

std::unique_ptr<Direction> make_direct_forward(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                               DType compute, const memory::desc& weights, bool bias) {
  const ConvShapes c = conv_shapes(spec, x, compute);
  const auto pd = dnnl_compat::convolution_forward(state.engine, c.src, weights, bias ? c.bias_f32 : memory::desc(),
                                                   c.dst, c.window, c.attributes);
  std::vector<std::pair<int, memory::desc>> arguments{
      {DNNL_ARG_SRC, c.src}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, c.dst}};
  if (bias) arguments.emplace_back(DNNL_ARG_BIAS, c.bias_f32);
  return std::make_unique<PrimitiveDirection>(
      bind_primitive(state, dnnl::convolution_forward(pd), pd.scratchpad_desc(), arguments), pd.weights_desc(),
      DNNL_ARG_SRC, DNNL_ARG_DST);
}

std::unique_ptr<Direction> make_direct_backward_input(OnednnState& state, const Conv2dSpec& spec, const Shape& dx,
                                                      DType compute) {
  const ConvShapes c = conv_shapes(spec, dx, compute);
  const auto hint = dnnl_compat::convolution_forward(state.engine, c.src, c.any_weights, memory::desc(), c.dst,
                                                     c.window, c.attributes);
  const auto pd =
      dnnl_compat::convolution_backward_data(state.engine, c.src, c.any_weights, c.dst, c.window, hint, c.attributes);
  return std::make_unique<PrimitiveDirection>(
      bind_primitive(state, dnnl::convolution_backward_data(pd), pd.scratchpad_desc(),
                     {{DNNL_ARG_DIFF_SRC, c.src}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DIFF_DST, c.dst}}),
      pd.weights_desc(), DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC);
}

std::unique_ptr<WeightGradient> make_direct_gradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                                     DType compute, bool bias) {
  const ConvShapes c = conv_shapes(spec, x, compute);
  const auto pd = weight_gradient(state, c, bias);
  std::vector<std::pair<int, memory::desc>> arguments{
      {DNNL_ARG_SRC, c.src}, {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}, {DNNL_ARG_DIFF_DST, c.dst}};
  if (bias) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, c.bias_f32);
  return std::make_unique<PrimitiveGradient>(
      bind_primitive(state, dnnl::convolution_backward_weights(pd), pd.scratchpad_desc(), arguments),
      pd.diff_weights_desc());
}

}  // namespace convoy
