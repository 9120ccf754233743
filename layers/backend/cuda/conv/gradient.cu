// SPDX-License-Identifier: Apache-2.0
//
// Weight gradients on their way into the float32 buffer in which microbatches are summed.
#include <algorithm>
#include <cstddef>

#include "layers/backend/cuda/conv/dense_kernels.h"
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/element.cuh"
#include "layers/backend/cuda/fusion_rules.h"

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

struct GradientCast {
  const void* from;
  float* to;
  std::int64_t count;
};
struct GradientCasts {  // parameters of a kernel: they hold up to 4 KB
  GradientCast all[kCastTogether];
};

// A row of blocks for each gradient.
template <class T>
__global__ void __launch_bounds__(kThreads) cast_gradients_kernel(GradientCasts casts) {
  constexpr int kCount = kLanes<T>;
  const GradientCast& cast = casts.all[blockIdx.y];
  const T* from = static_cast<const T*>(cast.from);
  const std::int64_t vectors = whole_vectors<T, float>(cast.count, from, cast.to);
  for (std::int64_t i = grid_thread(); i < vectors; i += grid_threads()) {
    const auto part = load_vector<kCount>(from, i);
    Vector<float, kCount> wide;
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) wide.lanes[lane] = load(part.lanes[lane]);
    store_vector(wide, cast.to, i);
  }
  for (std::int64_t i = vectors * kCount + grid_thread(); i < cast.count; i += grid_threads()) {
    cast.to[i] = load(from[i]);
  }
}

}  // namespace

void cast_gradients(const CudaState& state, std::span<const PendingGradient> all) {
  while (!all.empty()) {
    const auto part = all.first(std::min<std::size_t>(all.size(), kCastTogether));
    GradientCasts casts{};
    std::int64_t largest = 1;
    for (std::size_t i = 0; i < part.size(); ++i) {
      casts.all[i] = {part[i].gradient.raw(), part[i].dw.data<float>(), part[i].dw.size()};
      largest = std::max(largest, part[i].dw.size());
    }
    dispatch_activation(part.front().gradient.dtype(), [&](auto type) {
      using T = decltype(type);
      const dim3 grid(grid_blocks(state, largest / kLanes<T> + 1), static_cast<unsigned>(part.size()));
      launch_kernel(state, grid, kThreads, cast_gradients_kernel<T>, casts);
    });
    all = all.subspan(part.size());
  }
}

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
