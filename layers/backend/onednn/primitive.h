// SPDX-License-Identifier: Apache-2.0
//
// oneDNN primitives with the buffers they will be pointed at. Private to layers/backend/onednn.
#pragma once

#include <cstddef>
#include <dnnl.hpp>
#include <initializer_list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layers/backend/backend.h"

namespace convoy {

struct OnednnState;

/// One primitive and its arguments; the data of these is filled in at each run.
struct BoundPrimitive {
  dnnl::primitive primitive;
  std::size_t scratchpad_bytes = 0;
  std::unordered_map<int, dnnl::memory> arguments;
};

/// Attributes of a primitive whose scratchpad is given at each run, as run_primitive() does.
dnnl::primitive_attr user_scratchpad();

/// Turns what a primitive descriptor says into a BoundPrimitive: `arguments` maps argument index to its descriptor.
BoundPrimitive bind_primitive(OnednnState& state, const dnnl::primitive& primitive,
                              const dnnl::memory::desc& scratchpad,
                              const std::vector<std::pair<int, dnnl::memory::desc>>& arguments);

/// The matrix product c = a b, or c += a b where `add`; a is DNNL_ARG_SRC, b DNNL_ARG_WEIGHTS and c DNNL_ARG_DST.
BoundPrimitive bind_product(OnednnState& state, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                            const dnnl::memory::desc& c, bool add);

/// Runs a bound primitive with `handles` (argument index, data), of which those it has no argument for are skipped,
/// and a scratchpad out of `backend`'s pool.
void run_primitive(OnednnState& state, Backend& backend, BoundPrimitive& bound,
                   std::initializer_list<std::pair<int, void*>> handles);

/// The same with a stream and a scratchpad of the caller's own, from several threads at once: oneDNN uses one thread
/// for each. `bound` must be a thread's own, too.
void run_primitive(const dnnl::stream& stream, BoundPrimitive& bound, void* scratchpad,
                   std::initializer_list<std::pair<int, void*>> handles);

}  // namespace convoy
