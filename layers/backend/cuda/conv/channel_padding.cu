// SPDX-License-Identifier: Apache-2.0
//
// Images with a few channels on their way to a convolution that wants whole vectors of them, and back.
#include "layers/backend/cuda/channel_rows.cuh"
#include "layers/backend/cuda/conv/dense_kernels.h"

namespace convoy::gpu {

namespace {

// `count` vectors of kCount elements of wide [rows, vectors of a row]; few [rows, channels].
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    pad_kernel(const T* few, std::int64_t count, int vectors, int channels, T* wide) {
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

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    cut_kernel(const T* wide, std::int64_t count, int vectors, int channels, T* few) {
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

// Calls f(T{}, lanes of a vector): 16 bytes, or the 4 channels of an image.
template <class F>
void dispatch_wide(const Tensor& wide, const F& f) {
  dispatch_activation(wide.dtype(), [&](auto type) {
    using T = decltype(type);
    if (wide.shape()[1] % kLanes<T> == 0) return f(type, std::integral_constant<int, kLanes<T>>{});
    f(type, std::integral_constant<int, 4>{});
  });
}

}  // namespace

void pad_channels(const CudaState& state, const Tensor& x, const Tensor& wide) {
  if (wide.size() == 0) return;
  dispatch_wide(wide, [&](auto type, auto lanes) {
    using T = decltype(type);
    constexpr int kCount = decltype(lanes)::value;
    const std::int64_t count = wide.size() / kCount;
    launch_kernel(state, grid_blocks(state, count), kThreads, pad_kernel<T, kCount>, x.data<const T>(), count,
                  static_cast<int>(wide.shape()[1] / kCount), static_cast<int>(x.shape()[1]), wide.data<T>());
  });
}

void cut_channels(const CudaState& state, const Tensor& wide, const Tensor& x) {
  if (x.size() == 0) return;
  dispatch_wide(wide, [&](auto type, auto lanes) {
    using T = decltype(type);
    constexpr int kCount = decltype(lanes)::value;
    const std::int64_t count = wide.size() / kCount;
    launch_kernel(state, grid_blocks(state, count), kThreads, cut_kernel<T, kCount>, wide.data<const T>(), count,
                  static_cast<int>(wide.shape()[1] / kCount), static_cast<int>(x.shape()[1]), x.data<T>());
  });
}

}  // namespace convoy::gpu
