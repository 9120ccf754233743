// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/onednn_state.h"

#include <cstring>

#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/base/error.h"
#include "layers/base/rehearsal.h"

namespace convoy {

namespace {

// Whether oneDNN uses all of these instructions. On Arm the bits stand for others.
bool uses([[maybe_unused]] dnnl::cpu_isa isa) {
#ifdef __x86_64__
  const auto wanted = static_cast<unsigned>(isa);  // a set of features
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
#else
  return false;
#endif
}

}  // namespace

dnnl::memory::data_type onednn_type(DType dtype) {
  if (dtype == DType::kF32) return dnnl::memory::data_type::f32;
  if (dtype == DType::kBF16) return dnnl::memory::data_type::bf16;
  fail("oneDNN operations do not take {}", dtype_name(dtype));
}

bool has_bf16() { return uses(dnnl::cpu_isa::avx512_core_bf16); }

bool has_matrix_units() { return uses(dnnl::cpu_isa::avx512_core_amx); }

Tensor tensor_of(Backend& backend, const dnnl::memory::desc& md) {
  return backend.tensor({static_cast<std::int64_t>(md.get_size() / sizeof(float))}, DType::kF32);
}

void reorder(OnednnState& state, const dnnl::memory::desc& from_md, void* from, const dnnl::memory::desc& to_md,
             void* to) {
  if (rehearsing()) return;
  dnnl::memory source(from_md, state.engine, from);
  dnnl::memory destination(to_md, state.engine, to);
  dnnl::reorder(source, destination).execute(state.stream, source, destination);
  state.stream.wait();
}

void reorder_backward(OnednnState& state, const OnednnWeightLayout& layout, void* compute,
                      const dnnl::memory::desc& to_md, void* to) {
  if (rehearsing()) return;
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

void run_backward_input(OnednnState& state, Backend& backend, Direction& direction, const Tensor& dy,
                        const Weight& weight, const Tensor& dx) {
  const auto& layout = static_cast<const OnednnWeightLayout&>(*weight.layout);
  const dnnl::memory::desc& wanted = direction.weights();
  if (wanted == layout.backward) return direction.run(state, backend, dy, weight.backward.raw(), nullptr, dx);
  const Tensor copy = backend.tensor({static_cast<std::int64_t>(wanted.get_size())}, DType::kU8);
  reorder_backward(state, layout, weight.compute.raw(), wanted, copy.raw());
  direction.run(state, backend, dy, copy.raw(), nullptr, dx);
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
  gradient.run(state, backend, x, dy, result, bias_result);
  if (!same_format) {
    const Tensor native = accumulate ? backend.tensor({layout.elements()}, DType::kF32) : dw;
    reorder(state, gradient.format(), result.raw(), layout.native, native.raw());
    result = native;
  }
  if (accumulate) {
    backend.run(ops::Axpy{1.0F, result, dw});
    if (dbias) backend.run(ops::Axpy{1.0F, bias_result, dbias});
  }
}

}  // namespace convoy
