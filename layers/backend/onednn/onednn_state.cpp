// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/onednn_state.h"

#include <cstring>

#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/base/error.h"

namespace convoy {

dnnl::memory::data_type onednn_type(DType dtype) {
  if (dtype == DType::kF32) return dnnl::memory::data_type::f32;
  if (dtype == DType::kBF16) return dnnl::memory::data_type::bf16;
  fail("oneDNN operations do not take {}", dtype_name(dtype));
}

bool has_matrix_units() {
  const auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);  // a set of features, as all of them are
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & amx) == amx;
}

BoundPrimitive bind_primitive(OnednnState& state, const dnnl::primitive& primitive, const dnnl::memory::desc& weights,
                              const dnnl::memory::desc& scratchpad,
                              const std::vector<std::pair<int, dnnl::memory::desc>>& arguments) {
  BoundPrimitive bound;
  bound.primitive = primitive;
  bound.weights = weights;
  bound.scratchpad_bytes = scratchpad.get_size();
  for (const auto& [index, md] : arguments) {
    bound.arguments.emplace(index, dnnl::memory(md, state.engine, DNNL_MEMORY_NONE));
  }
  if (bound.scratchpad_bytes > 0) {
    bound.arguments.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(scratchpad, state.engine, DNNL_MEMORY_NONE));
  }
  return bound;
}

BoundPrimitive bind_product(OnednnState& state, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                            const dnnl::memory::desc& c, bool add) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (add) {
    dnnl::post_ops ops;
    ops.append_sum(1.0F);
    attributes.set_post_ops(ops);
  }
  const auto pd = dnnl_compat::matmul(state.engine, a, b, c, attributes);
  return bind_primitive(state, dnnl::matmul(pd), b, pd.scratchpad_desc(),
                        {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
}

Tensor tensor_of(Backend& backend, const dnnl::memory::desc& md) {
  return backend.tensor({static_cast<std::int64_t>(md.get_size() / sizeof(float))}, DType::kF32);
}

void reorder(OnednnState& state, const dnnl::memory::desc& from_md, void* from, const dnnl::memory::desc& to_md,
             void* to) {
  dnnl::memory source(from_md, state.engine, from);
  dnnl::memory destination(to_md, state.engine, to);
  dnnl::reorder(source, destination).execute(state.stream, source, destination);
  state.stream.wait();
}

void reorder_backward(OnednnState& state, const OnednnWeightLayout& layout, void* compute,
                      const dnnl::memory::desc& to_md, void* to) {
  if (!layout.rotated) {
    reorder(state, layout.compute, compute, to_md, to);
    return;
  }
  std::memset(to, 0, to_md.get_size());  // what pads the format
  const auto dims = dnnl_compat::dims_of(to_md);
  const dnnl::memory::dims one{dims[0], dims[1], 1, 1};
  for (std::int64_t h = 0; h < dims[2]; ++h) {
    for (std::int64_t w = 0; w < dims[3]; ++w) {
      reorder(state, layout.compute.submemory_desc(one, {0, 0, h, w}), compute,
              to_md.submemory_desc(one, {0, 0, dims[2] - 1 - h, dims[3] - 1 - w}), to);
    }
  }
}

void run_primitive(OnednnState& state, Backend& backend, BoundPrimitive& bound,
                   std::initializer_list<std::pair<int, void*>> handles) {
  for (const auto& [index, data] : handles) {
    const auto found = bound.arguments.find(index);
    if (found != bound.arguments.end()) found->second.set_data_handle(data);
  }
  Tensor scratchpad;
  if (bound.scratchpad_bytes > 0) {
    scratchpad = backend.tensor({static_cast<std::int64_t>(bound.scratchpad_bytes)}, DType::kU8);
    bound.arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratchpad.raw());
  }
  bound.primitive.execute(state.stream, bound.arguments);
  state.stream.wait();
}

void PrimitiveGradient::run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, void* dw,
                            void* dbias) {
  run_primitive(state, backend, bound_,
                {{DNNL_ARG_SRC, x.raw()},
                 {DNNL_ARG_DIFF_DST, dy.raw()},
                 {DNNL_ARG_DIFF_WEIGHTS, dw},
                 {DNNL_ARG_DIFF_BIAS, dbias}});
}

void run_backward_weight(OnednnState& state, Backend& backend, WeightGradient& gradient, const Tensor& x,
                         const Tensor& dy, const OnednnWeightLayout& layout, const Tensor& dw, const Tensor& dbias,
                         bool accumulate) {
  const bool same_format = gradient.format() == layout.native;
  Tensor result = dw;
  if (accumulate || !same_format) {
    result = tensor_of(backend, gradient.format());
  }
  Tensor bias_result = dbias;
  if (dbias && accumulate) bias_result = backend.tensor(dbias.shape(), DType::kF32);
  gradient.run(state, backend, x, dy, result.raw(), bias_result.raw());
  if (!same_format) {
    const Tensor native = accumulate ? backend.tensor({layout.elements()}, DType::kF32) : dw;
    reorder(state, gradient.format(), result.raw(), layout.native, native.raw());
    result = native;
  }
  if (accumulate) {
    backend.axpy(1.0F, result, dw);
    if (dbias) backend.axpy(1.0F, bias_result, dbias);
  }
}

void* backward_weight_for(OnednnState& state, Backend& backend, const BoundPrimitive& bound, const Weight& weight,
                          Tensor& copy) {
  const auto& layout = static_cast<const OnednnWeightLayout&>(*weight.layout);
  if (bound.weights == layout.backward) return weight.backward.raw();
  copy = backend.tensor({static_cast<std::int64_t>(bound.weights.get_size())}, DType::kU8);
  reorder_backward(state, layout, weight.compute.raw(), bound.weights, copy.raw());
  return copy.raw();
}

}  // namespace convoy
