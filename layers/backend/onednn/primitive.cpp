// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/primitive.h"

#include <cstdint>

#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/rehearsal.h"

namespace convoy {

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

BoundPrimitive bind_primitive(OnednnState& state, const dnnl::primitive& primitive,
                              const dnnl::memory::desc& scratchpad,
                              const std::vector<std::pair<int, dnnl::memory::desc>>& arguments) {
  BoundPrimitive bound;
  bound.primitive = primitive;
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
  dnnl::primitive_attr attributes = user_scratchpad();
  if (add) {
    dnnl::post_ops ops;
    ops.append_sum(1.0F);
    attributes.set_post_ops(ops);
  }
  const auto pd = dnnl_compat::matmul(state.engine, a, b, c, attributes);
  return bind_primitive(state, dnnl::matmul(pd), pd.scratchpad_desc(),
                        {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
}

void run_primitive(OnednnState& state, Backend& backend, BoundPrimitive& bound,
                   std::initializer_list<std::pair<int, void*>> handles) {
  Tensor scratchpad;
  if (bound.scratchpad_bytes > 0) {
    scratchpad = backend.tensor({static_cast<std::int64_t>(bound.scratchpad_bytes)}, DType::kU8);
  }
  run_primitive(state.stream, bound, scratchpad ? scratchpad.raw() : nullptr, handles);
}

void run_primitive(const dnnl::stream& stream, BoundPrimitive& bound, void* scratchpad,
                   std::initializer_list<std::pair<int, void*>> handles) {
  for (const auto& [index, data] : handles) {
    const auto found = bound.arguments.find(index);
    if (found != bound.arguments.end()) found->second.set_data_handle(data);
  }
  if (bound.scratchpad_bytes > 0) bound.arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratchpad);
  if (rehearsing()) return;
  bound.primitive.execute(stream, bound.arguments);
  dnnl::stream(stream).wait();
}

}  // namespace convoy
