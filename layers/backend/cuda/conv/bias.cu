// SPDX-License-Identifier: Apache-2.0
//
// Biases where no library adds them, and their gradients: sums over rows.
#include "layers/backend/cuda/channel_sums.cuh"
#include "layers/backend/cuda/conv/dense_kernels.h"

namespace convoy::gpu {

namespace {

template <int kRows, class T, int kCount>
__device__ void add_to_rows(const float (&bias)[kCount], std::int64_t stride, T* y) {
  Vector<T, kCount> rows[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) rows[row] = load_vector<kCount>(y + row * stride, 0);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      store(load(rows[row].lanes[lane]) + bias[lane], &rows[row].lanes[lane]);
    }
    store_vector(rows[row], y + row * stride, 0);
  }
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) add_bias_kernel(const float* bias, RowSlices slices, T* y) {
  constexpr int kTogether = 4;
  const std::int64_t channels = slices.channels, channel = thread_channel<kCount>();
  if (channel >= channels) return;
  float mine[kCount];
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) mine[lane] = bias[channel + lane];
  const std::int64_t first = blockIdx.y * slices.slice_rows, end = first + slices.rows_of(blockIdx.y);
  const std::int64_t step = blockDim.y, stride = step * channels;
  std::int64_t row = first + threadIdx.y;
  for (; row + (kTogether - 1) * step < end; row += kTogether * step) {
    add_to_rows<kTogether>(mine, stride, y + row * channels + channel);
  }
  for (; row < end; row += step) add_to_rows<1>(mine, stride, y + row * channels + channel);
}

struct AddOrSet {
  float* dbias;
  bool accumulate;
  // The sum is rounded to float before it is added, as it would be in a rank of its own.
  __device__ void operator()(std::int64_t channel, double sum, double) const {
    const auto value = static_cast<float>(sum);
    dbias[channel] = accumulate ? __fadd_rn(dbias[channel], value) : value;
  }
};

}  // namespace

void add_bias(const CudaState& state, const Tensor& bias, const Tensor& y) {
  if (y.size() == 0) return;
  dispatch_activation(y.dtype(), [&](auto type) {
    using T = decltype(type);
    T* output = y.data<T>();
    const auto launch = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const RowTiles tiles = row_tiles(state, y.shape(), kCount, 16);
      launch_kernel(state, tiles.grid, tiles.block, add_bias_kernel<T, kCount>, bias.data<const float>(), tiles.slices,
                    output);
    };
    dispatch_lanes<T>(y.shape()[1], launch, output);
  });
}

void bias_gradient(const CudaState& state, Backend& backend, const Tensor& dy, const Tensor& dbias, bool accumulate) {
  const std::int64_t channels = dy.shape()[1];
  Tensor partial;
  unsigned slices = 0;  // none for an empty batch
  if (dy.size() > 0) {
    dispatch_activation(dy.dtype(), [&](auto type) {
      using T = decltype(type);
      const T* gradient = dy.data<T>();
      const auto launch = [&](auto lanes) {
        constexpr int kCount = decltype(lanes)::value;
        const RowTiles tiles = row_tiles(state, dy.shape(), kCount, 3);
        slices = tiles.grid.y;
        partial = backend.tensor({slices, 1, channels}, DType::kF32);
        launch_kernel(state, tiles.grid, tiles.block,
                      channel_sums_kernel<T, StoredGradient, kCount, ReluMask::kNone, false>,
                      SumInputs<T, StoredGradient>{{gradient, channels}, nullptr, nullptr, {}, nullptr}, tiles.slices,
                      partial.data<float>());
      };
      dispatch_lanes<T>(channels, launch, gradient);
    });
  }
  merge_sums<false>(state, partial, slices, channels, AddOrSet{dbias.data<float>(), accumulate});
}

}  // namespace convoy::gpu
