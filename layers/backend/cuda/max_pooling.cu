// SPDX-License-Identifier: Apache-2.0
//
// Max pooling of the CUDA backend, also of the output of a batch norm that is not stored. Records for every output
// which place of its window won; backward then gathers: each input pixel adds the gradients of those windows that cover
// it and chose it, in row-major order. A block has one line of pixels, a thread 16 bytes of channels.
#include <cmath>

#include "layers/backend/cuda/batch_norm.cuh"
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/pooling.cuh"

namespace convoy {

namespace {

using gpu::geometry;
using gpu::kThreads;
using gpu::LineLaunch;
using gpu::load_lanes;
using gpu::PoolGeometry;
using gpu::store_lanes;
using gpu::Vector;

// y and argmax [lines, out_width, channels]; line = image * out_height + out_row.
// kNormalized: of max(0, scale * x + shift), which is rounded once the largest is found.
template <class T, int kCount, bool kNormalized>
__global__ void __launch_bounds__(kThreads, kNormalized ? 3 : 4)
    max_pool_kernel(const T* x, gpu::NormInputs norm, PoolGeometry g, T* y, std::uint8_t* argmax) {
  const int vectors = static_cast<int>(g.channels / kCount);
  const std::int64_t line = blockIdx.x, image = line / g.out_height;
  const int top = static_cast<int>(line % g.out_height) * g.stride_height - g.padding_height;
  const int first_row = max(0, top), end_row = min(g.height, top + g.kernel_height);
  for (int i = static_cast<int>(threadIdx.x); i < g.out_width * vectors; i += static_cast<int>(blockDim.x)) {
    const int left = i / vectors * g.stride_width - g.padding_width;
    const int first_column = max(0, left), end_column = min(g.width, left + g.kernel_width);
    const T* pixels = x + image * g.height * g.width * g.channels + i % vectors * kCount;
    gpu::Affine<kCount> map;
    if constexpr (kNormalized) gpu::load_affine(norm, i % vectors * kCount, map);
    float best[kCount];
    int places[kCount];
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      best[lane] = -INFINITY;
      places[lane] = (first_row - top) * g.kernel_width + first_column - left;
    }
    for (int row = first_row; row < end_row; ++row) {
      for (int column = first_column; column < end_column; ++column) {
        float values[kCount];
        load_lanes(pixels + (std::int64_t{row} * g.width + column) * g.channels, values);
        if constexpr (kNormalized) {
#pragma unroll
          for (int lane = 0; lane < kCount; ++lane) {
            values[lane] = gpu::positive_part(fmaf(values[lane], map.scale[lane], map.shift[lane]));
          }
        }
        const int place = (row - top) * g.kernel_width + column - left;
#pragma unroll
        for (int lane = 0; lane < kCount; ++lane) {
          const bool take = values[lane] > best[lane] || isnan(values[lane]);
          best[lane] = take ? values[lane] : best[lane];
          places[lane] = take ? place : places[lane];
        }
      }
    }
    const std::int64_t at = line * g.out_width * g.channels + std::int64_t{i} * kCount;
    store_lanes(best, y + at);
    Vector<std::uint8_t, kCount> chosen;
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) chosen.lanes[lane] = static_cast<std::uint8_t>(places[lane]);
    gpu::store_vector(chosen, argmax + at, 0);
  }
}

// dx [lines, width, channels]; line = image * height + row.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    max_pool_backward_kernel(const T* dy, const std::uint8_t* argmax, PoolGeometry g, T* dx) {
  const int vectors = static_cast<int>(g.channels / kCount);
  const std::int64_t line = blockIdx.x, image = line / g.height;
  const int row = static_cast<int>(line % g.height);
  for (int i = static_cast<int>(threadIdx.x); i < g.width * vectors; i += static_cast<int>(blockDim.x)) {
    float sums[kCount];
    gpu::gather_max_pool(dy, argmax, g, image, row, i / vectors, i % vectors * kCount, sums);
    store_lanes(sums, dx + line * g.width * g.channels + std::int64_t{i} * kCount);
  }
}

}  // namespace

void CudaBackend::run(const ops::MaxPoolForward& op) {
  const PoolGeometry g = geometry(op.spec, op.x.shape(), op.y.shape());
  if (op.y.size() == 0) return;
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.x.data<T>();
    T* output = op.y.data<T>();
    auto* places = op.argmax.data<std::uint8_t>();
    const auto start = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const LineLaunch launch(op.x.shape()[0] * g.out_height, g.out_width, g.channels, kCount);
      gpu::launch_kernel(*state_, launch.lines, launch.threads, max_pool_kernel<T, kCount, false>, input,
                         gpu::NormInputs{}, g, output, places);
    };
    gpu::dispatch_lanes<T>(g.channels, start, input, output, places);
  });
}

void CudaBackend::run(const ops::MaxPoolBackward& op) {
  const PoolGeometry g = geometry(op.spec, op.dx.shape(), op.dy.shape());
  if (op.dx.size() == 0) return;
  gpu::dispatch_activation(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* gradient = op.dy.data<T>();
    T* dinput = op.dx.data<T>();
    const auto* places = op.argmax.data<std::uint8_t>();
    const auto start = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const LineLaunch launch(op.dx.shape()[0] * g.height, g.width, g.channels, kCount);
      gpu::launch_kernel(*state_, launch.lines, launch.threads, max_pool_backward_kernel<T, kCount>, gradient, places,
                         g, dinput);
    };
    gpu::dispatch_lanes<T>(g.channels, start, gradient, dinput, places);
  });
}

void CudaBackend::max_pool_normalized(const ops::BatchNormApply& op) {
  const ops::MaxPoolForward& pool = *op.epilogue;
  const PoolGeometry g = geometry(pool.spec, op.x.shape(), pool.y.shape());
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.x.data<T>();
    T* output = pool.y.data<T>();
    auto* places = pool.argmax.data<std::uint8_t>();
    const auto start = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const LineLaunch launch(op.x.shape()[0] * g.out_height, g.out_width, g.channels, kCount);
      gpu::launch_kernel(*state_, launch.lines, launch.threads, max_pool_kernel<T, kCount, true>, input,
                         gpu::norm_inputs(op), g, output, places);
    };
    gpu::dispatch_lanes<T>(g.channels, start, input, output, places);
  });
}

}  // namespace convoy
