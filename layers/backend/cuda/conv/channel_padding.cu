// SPDX-License-Identifier: Apache-2.0
//
// Images with a few channels on their way to a convolution that wants whole vectors of them, and back.
#include "layers/backend/cuda/channel_rows.cuh"
#include "layers/backend/cuda/conv/dense_kernels.h"

namespace convoy::gpu {

namespace {

// `count` vectors of kLanes<T> elements of wide [rows, vectors of a row]; few [rows, channels].
template <class T>
__global__ void __launch_bounds__(kThreads)
    pad_kernel(const T* few, std::int64_t count, int vectors, int channels, T* wide) {
  constexpr int kCount = kLanes<T>;
  for (std::int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const std::int64_t row = i / vectors;
    const int first = static_cast<int>(i - row * vectors) * kCount;
    float values[kCount];
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      values[lane] = first + lane < channels ? load(few[row * channels + first + lane]) : 0.0F;
    }
    store_lanes(values, wide + i * kCount);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    cut_kernel(const T* wide, std::int64_t count, int vectors, int channels, T* few) {
  constexpr int kCount = kLanes<T>;
  for (std::int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const std::int64_t row = i / vectors;
    const int first = static_cast<int>(i - row * vectors) * kCount;
    const auto vector = load_vector<kCount>(wide, i);
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      if (first + lane < channels) few[row * channels + first + lane] = vector.lanes[lane];
    }
  }
}

}  // namespace

void pad_channels(const CudaState& state, const Tensor& x, const Tensor& wide) {
  if (wide.size() == 0) return;
  dispatch_activation(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t count = wide.size() / kLanes<T>;
    launch_kernel(state, grid_blocks(state, count), kThreads, pad_kernel<T>, x.data<const T>(), count,
                  static_cast<int>(wide.shape()[1] / kLanes<T>), static_cast<int>(x.shape()[1]), wide.data<T>());
  });
}

void cut_channels(const CudaState& state, const Tensor& wide, const Tensor& x) {
  if (x.size() == 0) return;
  dispatch_activation(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t count = wide.size() / kLanes<T>;
    launch_kernel(state, grid_blocks(state, count), kThreads, cut_kernel<T>, wide.data<const T>(), count,
                  static_cast<int>(wide.shape()[1] / kLanes<T>), static_cast<int>(x.shape()[1]), x.data<T>());
  });
}

}  // namespace convoy::gpu
