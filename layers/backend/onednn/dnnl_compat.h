// SPDX-License-Identifier: Apache-2.0
//
// The one place that distinguishes oneDNN 2 from oneDNN 3: version 2 builds an operation descriptor and then a
// primitive descriptor, version 3 builds the latter at once. Everything else here is written against these few
// functions.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <utility>
#include <vector>

namespace convoy::dnnl_compat {

using dnnl::memory;

struct Window {
  memory::dims strides, padding;
};

/// A blocked format: strides of the outer axes, and the inner blocks as (size, axis), from the outermost.
struct Blocking {
  memory::dims strides;
  std::vector<std::pair<std::int64_t, std::int64_t>> blocks;
};

#if DNNL_VERSION_MAJOR >= 3

inline memory::dims dims_of(const memory::desc& md) { return md.get_dims(); }
inline memory::data_type type_of(const memory::desc& md) { return md.get_data_type(); }
inline Blocking blocking_of(const memory::desc& md) {
  if (md.get_format_kind() != memory::format_kind::blocked) return {};
  Blocking result{md.get_strides(), {}};
  const auto sizes = md.get_inner_blks(), axes = md.get_inner_idxs();
  for (std::size_t i = 0; i < sizes.size(); ++i) result.blocks.emplace_back(sizes[i], axes[i]);
  return result;
}

inline dnnl::convolution_forward::primitive_desc convolution_forward(
    const dnnl::engine& engine, const memory::desc& src, const memory::desc& weights, const memory::desc& bias,
    const memory::desc& dst, const Window& w, const dnnl::primitive_attr& attr) {
  return {engine,
          dnnl::prop_kind::forward_training,
          dnnl::algorithm::convolution_direct,
          src,
          weights,
          bias,
          dst,
          w.strides,
          w.padding,
          w.padding,
          attr};
}
inline dnnl::convolution_backward_data::primitive_desc convolution_backward_data(
    const dnnl::engine& engine, const memory::desc& diff_src, const memory::desc& weights, const memory::desc& diff_dst,
    const Window& w, const dnnl::convolution_forward::primitive_desc& hint, const dnnl::primitive_attr& attr) {
  return {
      engine, dnnl::algorithm::convolution_direct, diff_src, weights, diff_dst, w.strides, w.padding, w.padding, hint,
      attr};
}
inline dnnl::convolution_backward_weights::primitive_desc convolution_backward_weights(
    const dnnl::engine& engine, const memory::desc& src, const memory::desc& diff_weights,
    const memory::desc& diff_bias, const memory::desc& diff_dst, const Window& w,
    const dnnl::convolution_forward::primitive_desc& hint, const dnnl::primitive_attr& attr) {
  return {engine,    dnnl::algorithm::convolution_direct,
          src,       diff_weights,
          diff_bias, diff_dst,
          w.strides, w.padding,
          w.padding, hint,
          attr};
}
inline dnnl::inner_product_forward::primitive_desc inner_product_forward(
    const dnnl::engine& engine, const memory::desc& src, const memory::desc& weights, const memory::desc& bias,
    const memory::desc& dst, const dnnl::primitive_attr& attr) {
  return {engine, dnnl::prop_kind::forward_training, src, weights, bias, dst, attr};
}
inline dnnl::inner_product_backward_data::primitive_desc inner_product_backward_data(
    const dnnl::engine& engine, const memory::desc& diff_src, const memory::desc& weights, const memory::desc& diff_dst,
    const dnnl::inner_product_forward::primitive_desc& hint, const dnnl::primitive_attr& attr) {
  return {engine, diff_src, weights, diff_dst, hint, attr};
}
inline dnnl::inner_product_backward_weights::primitive_desc inner_product_backward_weights(
    const dnnl::engine& engine, const memory::desc& src, const memory::desc& diff_weights,
    const memory::desc& diff_bias, const memory::desc& diff_dst,
    const dnnl::inner_product_forward::primitive_desc& hint, const dnnl::primitive_attr& attr) {
  return {engine, src, diff_weights, diff_bias, diff_dst, hint, attr};
}
inline dnnl::matmul::primitive_desc matmul(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                                           const memory::desc& c, const dnnl::primitive_attr& attr) {
  return {engine, a, b, c, attr};
}

#else

inline memory::dims dims_of(const memory::desc& md) { return md.dims(); }
inline memory::data_type type_of(const memory::desc& md) { return md.data_type(); }
inline Blocking blocking_of(const memory::desc& md) {
  if (md.data.format_kind != dnnl_blocked || md.data.extra.flags != 0) return {};
  const auto& blocking = md.data.format_desc.blocking;
  Blocking result{memory::dims(blocking.strides, blocking.strides + md.data.ndims), {}};
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    result.blocks.emplace_back(blocking.inner_blks[i], blocking.inner_idxs[i]);
  }
  return result;
}

inline dnnl::convolution_forward::primitive_desc convolution_forward(
    const dnnl::engine& engine, const memory::desc& src, const memory::desc& weights, const memory::desc& bias,
    const memory::desc& dst, const Window& w, const dnnl::primitive_attr& attr) {
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, src, weights, bias, dst, w.strides,
           w.padding, w.padding},
          attr,
          engine};
}
inline dnnl::convolution_backward_data::primitive_desc convolution_backward_data(
    const dnnl::engine& engine, const memory::desc& diff_src, const memory::desc& weights, const memory::desc& diff_dst,
    const Window& w, const dnnl::convolution_forward::primitive_desc& hint, const dnnl::primitive_attr& attr) {
  return {{dnnl::algorithm::convolution_direct, diff_src, weights, diff_dst, w.strides, w.padding, w.padding},
          attr,
          engine,
          hint};
}
inline dnnl::convolution_backward_weights::primitive_desc convolution_backward_weights(
    const dnnl::engine& engine, const memory::desc& src, const memory::desc& diff_weights,
    const memory::desc& diff_bias, const memory::desc& diff_dst, const Window& w,
    const dnnl::convolution_forward::primitive_desc& hint, const dnnl::primitive_attr& attr) {
  return {
      {dnnl::algorithm::convolution_direct, src, diff_weights, diff_bias, diff_dst, w.strides, w.padding, w.padding},
      attr,
      engine,
      hint};
}
inline dnnl::inner_product_forward::primitive_desc inner_product_forward(
    const dnnl::engine& engine, const memory::desc& src, const memory::desc& weights, const memory::desc& bias,
    const memory::desc& dst, const dnnl::primitive_attr& attr) {
  return {{dnnl::prop_kind::forward_training, src, weights, bias, dst}, attr, engine};
}
inline dnnl::inner_product_backward_data::primitive_desc inner_product_backward_data(
    const dnnl::engine& engine, const memory::desc& diff_src, const memory::desc& weights, const memory::desc& diff_dst,
    const dnnl::inner_product_forward::primitive_desc& hint, const dnnl::primitive_attr& attr) {
  return {{diff_src, weights, diff_dst}, attr, engine, hint};
}
inline dnnl::inner_product_backward_weights::primitive_desc inner_product_backward_weights(
    const dnnl::engine& engine, const memory::desc& src, const memory::desc& diff_weights,
    const memory::desc& diff_bias, const memory::desc& diff_dst,
    const dnnl::inner_product_forward::primitive_desc& hint, const dnnl::primitive_attr& attr) {
  return {{src, diff_weights, diff_bias, diff_dst}, attr, engine, hint};
}
inline dnnl::matmul::primitive_desc matmul(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                                           const memory::desc& c, const dnnl::primitive_attr& attr) {
  return {{a, b, c}, attr, engine};
}

#endif

}  // namespace convoy::dnnl_compat
