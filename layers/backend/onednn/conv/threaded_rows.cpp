// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/conv/threaded_rows.h"

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kMinRows = 128;  // of a thread

}  // namespace

int row_threads(std::int64_t rows) {
  return static_cast<int>(std::clamp<std::int64_t>(rows / kMinRows, 1, omp_get_max_threads()));
}

ThreadedRows::ThreadedRows(OnednnState& state, std::vector<BoundPrimitive> parts, const dnnl::memory::desc& weights,
                           int from, int to)
    : Direction(weights), from_(from), to_(to) {
  for (BoundPrimitive& part : parts) parts_.push_back({dnnl::stream(state.engine), std::move(part)});
}

void ThreadedRows::run(OnednnState&, Backend& backend, const Tensor& from, void* weight, void* bias, const Tensor& to) {
  const std::int64_t rows = from.shape()[0], threads = std::ssize(parts_);
  std::vector<Tensor> scratchpads;
  for (const Part& part : parts_) {
    const auto bytes = static_cast<std::int64_t>(part.product.scratchpad_bytes);
    scratchpads.push_back(bytes > 0 ? backend.tensor({bytes}, DType::kU8) : Tensor());
  }
  auto* x = from.data<float>();
  auto* y = to.data<float>();
  const std::int64_t in = from.shape().sample_size(), out = to.shape().sample_size();
  parallel_ranges(threads, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t row = first_row(rows, i, threads);
      const auto index = static_cast<std::size_t>(i);
      const Tensor& scratchpad = scratchpads[index];
      run_primitive(parts_[index].stream, parts_[index].product, scratchpad ? scratchpad.raw() : nullptr,
                    {{from_, x + row * in}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_BIAS, bias}, {to_, y + row * out}});
    }
  });
}

}  // namespace convoy
