// SPDX-License-Identifier: Apache-2.0
//
// Average pooling of the CUDA backend. Backward gathers: each input pixel adds the gradients of the windows that cover
// it, in row-major order. So nothing is written twice and sums have one order. A block has one line of pixels, a thread
// 16 bytes of channels.
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/pooling.cuh"

namespace convoy {

namespace {

using gpu::first_window;
using gpu::geometry;
using gpu::kThreads;
using gpu::LineLaunch;
using gpu::load_lanes;
using gpu::PoolGeometry;
using gpu::store_lanes;

// y [lines, out_width, channels]; line = image * out_height + out_row. Pixels of the padding count as zeros.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads, 4) avg_pool_kernel(const T* x, PoolGeometry g, float scale, T* y) {
  const int vectors = static_cast<int>(g.channels / kCount);
  const std::int64_t line = blockIdx.x, image = line / g.out_height;
  const int top = static_cast<int>(line % g.out_height) * g.stride_height - g.padding_height;
  const int first_row = max(0, top), end_row = min(g.height, top + g.kernel_height);
  for (int i = static_cast<int>(threadIdx.x); i < g.out_width * vectors; i += static_cast<int>(blockDim.x)) {
    const int left = i / vectors * g.stride_width - g.padding_width;
    const int first_column = max(0, left), end_column = min(g.width, left + g.kernel_width);
    const T* pixels = x + image * g.height * g.width * g.channels + i % vectors * kCount;
    float sums[kCount] = {};
    for (int row = first_row; row < end_row; ++row) {
      for (int column = first_column; column < end_column; ++column) {
        float values[kCount];
        load_lanes(pixels + (std::int64_t{row} * g.width + column) * g.channels, values);
#pragma unroll
        for (int lane = 0; lane < kCount; ++lane) sums[lane] += values[lane];
      }
    }
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) sums[lane] *= scale;
    store_lanes(sums, y + line * g.out_width * g.channels + std::int64_t{i} * kCount);
  }
}

// dx [lines, width, channels]; line = image * height + row.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) avg_pool_backward_kernel(const T* dy, PoolGeometry g, float scale, T* dx) {
  const int vectors = static_cast<int>(g.channels / kCount);
  const std::int64_t line = blockIdx.x, image = line / g.height;
  const int row = static_cast<int>(line % g.height);
  const int first_row = first_window(row, g.kernel_height, g.stride_height, g.padding_height);
  const int last_row = min(g.out_height - 1, (row + g.padding_height) / g.stride_height);
  for (int i = static_cast<int>(threadIdx.x); i < g.width * vectors; i += static_cast<int>(blockDim.x)) {
    const int column = i / vectors;
    const int first_column = first_window(column, g.kernel_width, g.stride_width, g.padding_width);
    const int last_column = min(g.out_width - 1, (column + g.padding_width) / g.stride_width);
    float sums[kCount] = {};
    for (int out_row = first_row; out_row <= last_row; ++out_row) {
      for (int out = first_column; out <= last_column; ++out) {
        float gradients[kCount];
        load_lanes(dy + ((image * g.out_height + out_row) * g.out_width + out) * g.channels + i % vectors * kCount,
                   gradients);
#pragma unroll
        for (int lane = 0; lane < kCount; ++lane) sums[lane] += gradients[lane];
      }
    }
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) sums[lane] *= scale;
    store_lanes(sums, dx + line * g.width * g.channels + std::int64_t{i} * kCount);
  }
}

// A thread per image and vector of channels. Sums of rows are summed, so that rounding grows with height + width and
// not with their product.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    average_kernel(const T* x, std::int64_t count, int height, int width, std::int64_t channels, float scale, T* y) {
  const std::int64_t vectors = channels / kCount;
  for (std::int64_t i = gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    const T* pixel = x + i / vectors * height * width * channels + i % vectors * kCount;
    float total[kCount] = {};
    for (int row = 0; row < height; ++row) {
      float line[kCount] = {};
#pragma unroll 4
      for (int column = 0; column < width; ++column, pixel += channels) {
        float values[kCount];
        load_lanes(pixel, values);
#pragma unroll
        for (int lane = 0; lane < kCount; ++lane) line[lane] += values[lane];
      }
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) total[lane] += line[lane];
    }
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) total[lane] *= scale;
    store_lanes(total, y + i * kCount);
  }
}

// dx [lines, width, channels], `height` lines per image, each pixel dy [images, channels] times scale.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(const T* dy, int height, int width, std::int64_t channels, float scale, T* dx) {
  const int vectors = static_cast<int>(channels / kCount);
  const std::int64_t line = blockIdx.x;
  for (int i = static_cast<int>(threadIdx.x); i < width * vectors; i += static_cast<int>(blockDim.x)) {
    float values[kCount];
    load_lanes(dy + line / height * channels + i % vectors * kCount, values);
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) values[lane] *= scale;
    store_lanes(values, dx + line * width * channels + std::int64_t{i} * kCount);
  }
}

}  // namespace

void CudaBackend::run(const ops::AvgPoolForward& op) {
  const PoolGeometry g = geometry(op.spec, op.x.shape(), op.y.shape());
  if (op.y.size() == 0) return;
  const float scale = 1.0F / static_cast<float>(g.kernel_height * g.kernel_width);
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.x.data<T>();
    T* output = op.y.data<T>();
    const auto start = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const LineLaunch launch(op.x.shape()[0] * g.out_height, g.out_width, g.channels, kCount);
      gpu::launch_kernel(*state_, launch.lines, launch.threads, avg_pool_kernel<T, kCount>, input, g, scale, output);
    };
    gpu::dispatch_lanes<T>(g.channels, start, input, output);
  });
}

void CudaBackend::run(const ops::AvgPoolBackward& op) {
  const PoolGeometry g = geometry(op.spec, op.dx.shape(), op.dy.shape());
  if (op.dx.size() == 0) return;
  const float scale = 1.0F / static_cast<float>(g.kernel_height * g.kernel_width);
  gpu::dispatch_activation(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* gradient = op.dy.data<T>();
    T* dinput = op.dx.data<T>();
    const auto start = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const LineLaunch launch(op.dx.shape()[0] * g.height, g.width, g.channels, kCount);
      gpu::launch_kernel(*state_, launch.lines, launch.threads, avg_pool_backward_kernel<T, kCount>, gradient, g, scale,
                         dinput);
    };
    gpu::dispatch_lanes<T>(g.channels, start, gradient, dinput);
  });
}

void CudaBackend::run(const ops::GlobalAvgPoolForward& op) {
  if (op.y.size() == 0) return;
  const std::int64_t channels = op.x.shape()[1], pixels = op.x.shape()[2] * op.x.shape()[3];
  const int height = static_cast<int>(op.x.shape()[2]), width = static_cast<int>(op.x.shape()[3]);
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.x.data<T>();
    T* output = op.y.data<T>();
    const auto start = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const std::int64_t count = op.y.size() / kCount;
      gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, count), kThreads, average_kernel<T, kCount>, input, count,
                         height, width, channels, 1.0F / static_cast<float>(pixels), output);
    };
    gpu::dispatch_lanes<T>(channels, start, input, output);
  });
}

void CudaBackend::run(const ops::GlobalAvgPoolBackward& op) {
  if (op.dx.size() == 0) return;
  const std::int64_t channels = op.dx.shape()[1], pixels = op.dx.shape()[2] * op.dx.shape()[3];
  const int height = static_cast<int>(op.dx.shape()[2]), width = static_cast<int>(op.dx.shape()[3]);
  gpu::dispatch_activation(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* gradient = op.dy.data<T>();
    T* dinput = op.dx.data<T>();
    const auto start = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const LineLaunch launch(op.dx.shape()[0] * height, width, channels, kCount);
      gpu::launch_kernel(*state_, launch.lines, launch.threads, spread_kernel<T, kCount>, gradient, height, width,
                         channels, 1.0F / static_cast<float>(pixels), dinput);
    };
    gpu::dispatch_lanes<T>(channels, start, gradient, dinput);
  });
}

}  // namespace convoy
