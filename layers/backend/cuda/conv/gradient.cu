// SPDX-License-Identifier: Apache-2.0
//
// Weight gradients on their way into the float32 buffer in which microbatches are summed.
#include "layers/backend/cuda/conv/dense_kernels.h"
#include "layers/backend/cuda/element.cuh"

namespace convoy::gpu {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_gradient_kernel(const T* gradient, std::int64_t vectors, std::int64_t count, float* dw) {
  constexpr int kCount = kLanes<T>;
  for (std::int64_t i = grid_thread(); i < vectors; i += grid_threads()) {
    const auto part = load_vector<kCount>(gradient, i);
    auto sum = load_vector<kCount>(dw, i);
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) sum.lanes[lane] = __fadd_rn(sum.lanes[lane], load(part.lanes[lane]));
    store_vector(sum, dw, i);
  }
  for (std::int64_t i = vectors * kCount + grid_thread(); i < count; i += grid_threads()) {
    dw[i] = __fadd_rn(dw[i], load(gradient[i]));
  }
}

}  // namespace

void add_gradient(const CudaState& state, const Tensor& gradient, const Tensor& dw) {
  const std::int64_t count = dw.size();
  if (count == 0) return;
  dispatch_activation(gradient.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* source = gradient.data<T>();
    auto* target = dw.data<float>();
    const std::int64_t vectors = whole_vectors<T, float>(count, source, target);
    const std::int64_t items = std::max(vectors, count - vectors * kLanes<T>);
    launch_kernel(state, grid_blocks(state, items), kThreads, add_gradient_kernel<T>, source, vectors, count, target);
  });
}

}  // namespace convoy::gpu
