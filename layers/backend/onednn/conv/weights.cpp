// SPDX-License-Identifier: Apache-2.0
//
// Weights on their way between files (row-major float32), the flat buffers (native format) and the primitives (compute
// format).
#include <cstdint>

#include "layers/backend/onednn/conv/winograd_transforms.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/onednn_state.h"

namespace convoy {

namespace {

// The same tensor row by row.
dnnl::memory::desc row_major(const dnnl::memory::desc& md) {
  using Tag = dnnl::memory::format_tag;
  const auto dims = dnnl_compat::dims_of(md);
  const Tag tag = dims.size() == 5 ? Tag::abcde : dims.size() == 4 ? Tag::abcd : Tag::ab;  // 5: with groups
  return {dims, dnnl::memory::data_type::f32, tag};
}

}  // namespace

void OnednnBackend::import_weight(const WeightLayout& layout, const float* host, const Tensor& native) {
  const auto* blocked = dynamic_cast<const OnednnWeightLayout*>(&layout);
  if (blocked == nullptr) {
    copy_from_host(host, native);
    return;
  }
  const dnnl::memory::desc plain_md = row_major(blocked->native);
  reorder(*state_, plain_md, const_cast<float*>(host), blocked->native, native.raw());
}

void OnednnBackend::export_weight(const WeightLayout& layout, const Tensor& native, float* host) {
  const auto* blocked = dynamic_cast<const OnednnWeightLayout*>(&layout);
  if (blocked == nullptr) {
    copy_to_host(native, host);
    return;
  }
  const dnnl::memory::desc plain_md = row_major(blocked->native);
  reorder(*state_, blocked->native, native.raw(), plain_md, host);
}

void OnednnBackend::refresh_compute(Weight& weight) {
  const auto* blocked = dynamic_cast<const OnednnWeightLayout*>(weight.layout);
  if (blocked == nullptr) {
    weight.compute = weight.backward = weight.master;  // biases and batch norm stay float32
    return;
  }
  const auto reserve = [&](const dnnl::memory::desc& md, Tensor& target) {
    if (!target)
      target = tensor({static_cast<std::int64_t>(md.get_size() / dtype_size(state_->products))}, state_->products);
  };
  if (blocked->winograd > 0) {
    if (!weight.compute) weight.compute = tensor_of(*this, blocked->compute);
    if (!weight.backward) weight.backward = tensor_of(*this, blocked->backward);
    const std::int64_t m = blocked->winograd, in = blocked->shape()[1], out = blocked->shape()[0];
    winograd_weight(m, weight.master.data<float>(), in, out, weight.compute.data<float>());
    winograd_weight_transposed(m, weight.master.data<float>(), in, out, weight.backward.data<float>());
    return;
  }
  if (blocked->tiles && weight.compute && weight.backward) {
    copy_weight(*blocked->tiles, weight.master.data<float>(), weight.compute.data<BFloat16>(),
                weight.backward.data<BFloat16>());
    return;
  }
  if (blocked->native == blocked->compute) {
    weight.compute = weight.master;
  } else {
    reserve(blocked->compute, weight.compute);
    reorder(*state_, blocked->native, weight.master.raw(), blocked->compute, weight.compute.raw());
  }
  if (blocked->rotated || (blocked->backward != blocked->native && blocked->backward != blocked->compute)) {
    reserve(blocked->backward, weight.backward);
    reorder_backward(*state_, *blocked, weight.compute.raw(), blocked->backward, weight.backward.raw());
  } else {
    weight.backward = blocked->backward == blocked->native ? weight.master : weight.compute;
  }
}

}  // namespace convoy
