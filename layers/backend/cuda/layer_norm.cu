// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation of the CUDA backend. A warp does a row, whose channels are contiguous; its second and third look
// at the row come from the cache. The parameters' gradients are sums over rows, in the two stages of batch norm's.
#include "layers/backend/cuda/channel_sums.cuh"
#include "layers/backend/cuda/cuda_backend.h"

namespace convoy {

namespace {

using gpu::kThreads;
using gpu::load_lanes;
using gpu::RowSlices;
using gpu::RowTiles;
using gpu::store_lanes;

constexpr int kWarp = 32, kWarps = kThreads / kWarp;  // of a block

/// Per row.
struct Statistics {
  float *mean, *inverse_std;
};

/// The sum over the warp, for all of its threads, in a fixed tree.
__device__ float warp_sum(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffU, value, offset);
  return value;
}

/// Calls f(channel) for each group of kCount channels of this thread.
template <int kCount, class F>
__device__ void for_channels(std::int64_t channels, F f) {
  for (std::int64_t channel = threadIdx.x * kCount; channel < channels; channel += kWarp * kCount) f(channel);
}

/// The rows of this warp.
template <class F>
__device__ void for_rows(std::int64_t rows, F f) {
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.y; row < rows; row += step) f(row);
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const T* x, const float* gamma, const float* beta, float epsilon, std::int64_t rows,
                   std::int64_t channels, T* y, Statistics statistics) {
  for_rows(rows, [&](std::int64_t row) {
    const T* in = x + row * channels;
    float values[kCount], factors[kCount], shifts[kCount], sum = 0.0F, squares = 0.0F;
    for_channels<kCount>(channels, [&](std::int64_t channel) {
      load_lanes(in + channel, values);
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) sum += values[lane];
    });
    const float mean = warp_sum(sum) / static_cast<float>(channels);
    for_channels<kCount>(channels, [&](std::int64_t channel) {
      load_lanes(in + channel, values);
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) squares += (values[lane] - mean) * (values[lane] - mean);
    });
    const float inverse_std = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(channels) + epsilon);
    for_channels<kCount>(channels, [&](std::int64_t channel) {
      load_lanes(in + channel, values);
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) {
        factors[lane] = gamma[channel + lane];
        shifts[lane] = beta[channel + lane];
        values[lane] = fmaf(factors[lane], (values[lane] - mean) * inverse_std, shifts[lane]);
      }
      store_lanes(values, y + row * channels + channel);
    });
    if (threadIdx.x == 0) {
      statistics.mean[row] = mean;
      statistics.inverse_std[row] = inverse_std;
    }
  });
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    backward_input_kernel(const T* dy, const T* x, const float* gamma, Statistics statistics, std::int64_t rows,
                          std::int64_t channels, T* dx) {
  for_rows(rows, [&](std::int64_t row) {
    const float mean = statistics.mean[row], inverse_std = statistics.inverse_std[row];
    float g[kCount], normalized[kCount], sum = 0.0F, products = 0.0F;
    const auto load_both = [&](std::int64_t channel) {
      load_lanes(dy + row * channels + channel, g);
      load_lanes(x + row * channels + channel, normalized);
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) {
        g[lane] *= gamma[channel + lane];
        normalized[lane] = (normalized[lane] - mean) * inverse_std;
      }
    };
    for_channels<kCount>(channels, [&](std::int64_t channel) {
      load_both(channel);
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) {
        sum += g[lane];
        products = fmaf(g[lane], normalized[lane], products);
      }
    });
    const float mean_g = warp_sum(sum) / static_cast<float>(channels);
    const float mean_product = warp_sum(products) / static_cast<float>(channels);
    for_channels<kCount>(channels, [&](std::int64_t channel) {
      load_both(channel);
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) {
        g[lane] = inverse_std * (g[lane] - mean_g - normalized[lane] * mean_product);
      }
      store_lanes(g, dx + row * channels + channel);
    });
  });
}

// Sets partial [slices, 2, channels]: the sums of dy over the rows of a slice, and of dy * xhat. Float over 32 rows of
// a thread, then over its rows.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    backward_weight_kernel(const T* dy, const T* x, Statistics statistics, RowSlices slices, float* partial) {
  constexpr int kChunkRows = 32;
  CONVOY_SHARED(float, of_thread, [2][kThreads * kCount]);
  const std::int64_t channels = slices.channels, channel = gpu::thread_channel<kCount>();
  const std::int64_t first = blockIdx.y * slices.slice_rows, end = first + slices.rows_of(blockIdx.y);
  float sums[kCount] = {}, products[kCount] = {};
  if (channel < channels) {
    std::int64_t row = first + threadIdx.y;
    while (row < end) {
      float chunk_sums[kCount] = {}, chunk_products[kCount] = {}, g[kCount], in[kCount];
      for (int n = 0; n < kChunkRows && row < end; ++n, row += blockDim.y) {
        load_lanes(dy + row * channels + channel, g);
        load_lanes(x + row * channels + channel, in);
        const float mean = statistics.mean[row], inverse_std = statistics.inverse_std[row];
#pragma unroll
        for (int lane = 0; lane < kCount; ++lane) {
          chunk_sums[lane] += g[lane];
          chunk_products[lane] += g[lane] * ((in[lane] - mean) * inverse_std);
        }
      }
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) {
        sums[lane] += chunk_sums[lane];
        products[lane] += chunk_products[lane];
      }
    }
  }
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) {
    of_thread[0][thread * kCount + lane] = sums[lane];
    of_thread[1][thread * kCount + lane] = products[lane];
  }
  __syncthreads();
  const int tile = static_cast<int>(blockDim.x) * kCount;
  const std::int64_t mine = std::int64_t{blockIdx.x} * tile + thread;
  if (thread >= tile || mine >= channels) return;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    float sum = 0.0F;
    for (int row = 0; row < static_cast<int>(blockDim.y); ++row) sum += of_thread[which][row * tile + thread];
    partial[(std::int64_t{blockIdx.y} * 2 + which) * channels + mine] = sum;
  }
}

// Sums are rounded to float before they are added, as those of another rank would be.
struct SetOrAdd {
  float *dgamma, *dbeta;
  bool accumulate;
  __device__ void operator()(std::int64_t channel, double sum, double product) const {
    gpu::set_or_add(static_cast<float>(sum), accumulate, dbeta + channel);
    gpu::set_or_add(static_cast<float>(product), accumulate, dgamma + channel);
  }
};

Statistics statistics_of(const Tensor& mean, const Tensor& inverse_std) {
  return {mean.data<float>(), inverse_std.data<float>()};
}

}  // namespace

void CudaBackend::run(const ops::LayerNormForward& op) {
  const std::int64_t channels = op.x.shape()[1], rows = op.mean.size();
  if (op.x.size() == 0) return;
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto launch = [&](auto lanes) {
      gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, rows, kWarps), dim3(kWarp, kWarps),
                         forward_kernel<T, decltype(lanes)::value>, op.x.data<T>(), op.gamma.data<float>(),
                         op.beta.data<float>(), op.epsilon, rows, channels, op.y.data<T>(),
                         statistics_of(op.mean, op.inverse_std));
    };
    gpu::dispatch_lanes<T>(channels, launch, op.x.data<T>(), op.y.data<T>());
  });
}

void CudaBackend::run(const ops::LayerNormBackwardInput& op) {
  const std::int64_t channels = op.x.shape()[1], rows = op.mean.size();
  if (op.x.size() == 0) return;
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto launch = [&](auto lanes) {
      gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, rows, kWarps), dim3(kWarp, kWarps),
                         backward_input_kernel<T, decltype(lanes)::value>, op.dy.data<T>(), op.x.data<T>(),
                         op.gamma.data<float>(), statistics_of(op.mean, op.inverse_std), rows, channels,
                         op.dx.data<T>());
    };
    gpu::dispatch_lanes<T>(channels, launch, op.dy.data<T>(), op.x.data<T>(), op.dx.data<T>());
  });
}

void CudaBackend::run(const ops::LayerNormBackwardWeight& op) {
  const std::int64_t channels = op.x.shape()[1];
  Tensor partial;
  unsigned slices = 0;  // none for an empty batch
  if (op.x.size() > 0) {
    gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
      using T = decltype(type);
      const auto launch = [&](auto lanes) {
        constexpr int kCount = decltype(lanes)::value;
        const RowTiles tiles = gpu::row_tiles(*state_, op.x.shape(), kCount, 3);
        slices = tiles.grid.y;
        partial = tensor({slices, 2, channels}, DType::kF32);
        gpu::launch_kernel(*state_, tiles.grid, tiles.block, backward_weight_kernel<T, kCount>, op.dy.data<T>(),
                           op.x.data<T>(), statistics_of(op.mean, op.inverse_std), tiles.slices, partial.data<float>());
      };
      gpu::dispatch_lanes<T>(channels, launch, op.dy.data<T>(), op.x.data<T>());
    });
  }
  const SetOrAdd finish{op.dgamma.data<float>(), op.dbeta.data<float>(), op.accumulate};
  gpu::launch_kernel(*state_, gpu::merge_grid(channels), dim3(gpu::kMergeChannels, gpu::kMergeLanes),
                     gpu::merge_sums_kernel<true, SetOrAdd>, partial.data<float>(), static_cast<int>(slices), channels,
                     finish);
}

}  // namespace convoy
