// SPDX-License-Identifier: Apache-2.0
//
// Sums over the rows of an activation, per channel: of a gradient, masked by ReLU or not, and of its products with the
// centred input. Float over 32 rows, float again over a thread's rows, and double over slices; all in a fixed order.
#pragma once

#include "layers/backend/cuda/batch_norm.cuh"
#include "layers/backend/cuda/pooling.cuh"

namespace convoy::gpu {

/// What the sums are taken over: the rows of a gradient (pooling.cuh), arrays [rows, channels]. y: of
/// ReluMask::kOutput; x null: no products.
template <class T, template <class> class Gradient>
struct SumInputs {
  Gradient<T> gradient;
  const T *x, *y;
  NormInputs norm;
  T* masked;  ///< receives what is summed; null: nothing
};

// Where a thread is: at kRows rows, `step` apart.
struct RowPlace {
  std::int64_t row, step, channel, channels;
};

// Adds these rows to sums and products.
template <int kRows, ReluMask kMask, bool kProducts, class T, template <class> class Gradient, int kCount>
__device__ void add_rows(const SumInputs<T, Gradient>& in, const RowPlace& place, const float (&mean)[kCount],
                         const Affine<kCount>& map, float (&sums)[kCount], float (&products)[kCount]) {
  const std::int64_t at = place.row * place.channels + place.channel, stride = place.step * place.channels;
  decltype(in.gradient.template load<kCount>(0, 0)) dy[kRows];
  Vector<T, kCount> x[kRows], y[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    dy[row] = in.gradient.template load<kCount>(place.row + row * place.step, place.channel);
    if constexpr (kProducts) x[row] = load_vector<kCount>(in.x + at + row * stride, 0);
    if constexpr (kMask == ReluMask::kOutput) y[row] = load_vector<kCount>(in.y + at + row * stride, 0);
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const Vector<T, kCount>& other = kMask == ReluMask::kOutput ? y[row] : x[row];
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      const float g = masked<kMask>(dy[row].lanes[lane], other.lanes[lane], map.scale[lane], map.shift[lane]);
      sums[lane] += g;
      if constexpr (kProducts) products[lane] += g * (load(x[row].lanes[lane]) - mean[lane]);
      if constexpr (kMask != ReluMask::kNone) store(g, &dy[row].lanes[lane]);
    }
    if constexpr (kProducts && std::is_same_v<Gradient<T>, StoredGradient<T>>) {
      if (in.masked != nullptr) store_vector(dy[row], in.masked + at + row * stride, 0);
    }
  }
}

// Sets partial [slices, 2, channels], or [slices, 1, channels] without products.
template <class T, template <class> class Gradient, int kCount, ReluMask kMask, bool kProducts>
__global__ void __launch_bounds__(kThreads, 3)
    channel_sums_kernel(SumInputs<T, Gradient> in, RowSlices slices, float* partial) {
  constexpr int kChunkRows = 32, kTogether = kProducts ? 2 : 4;
  CONVOY_SHARED(float, of_thread, [kProducts ? 2 : 1][kThreads * kCount]);
  const std::int64_t channels = slices.channels, channel = thread_channel<kCount>();
  const std::int64_t first = blockIdx.y * slices.slice_rows, end = first + slices.rows_of(blockIdx.y);
  const std::int64_t step = blockDim.y;
  float sums[kCount] = {}, products[kCount] = {};
  if (channel < channels) {
    float mean[kCount] = {};
    if constexpr (kProducts) {
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) mean[lane] = in.norm.mean[channel + lane];
    }
    Affine<kCount> map;
    if constexpr (kMask == ReluMask::kRecomputed) load_affine(in.norm, channel, map);
    std::int64_t row = first + threadIdx.y;
    while (row < end) {
      float chunk_sums[kCount] = {}, chunk_products[kCount] = {};
      int n = 0;
      for (; n < kChunkRows && row + (kTogether - 1) * step < end; n += kTogether, row += kTogether * step) {
        add_rows<kTogether, kMask, kProducts>(in, RowPlace{row, step, channel, channels}, mean, map, chunk_sums,
                                              chunk_products);
      }
      for (; n < kChunkRows && row < end; ++n, row += step) {
        add_rows<1, kMask, kProducts>(in, RowPlace{row, step, channel, channels}, mean, map, chunk_sums,
                                      chunk_products);
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
    if constexpr (kProducts) of_thread[1][thread * kCount + lane] = products[lane];
  }
  __syncthreads();
  const int tile = static_cast<int>(blockDim.x) * kCount;
  const std::int64_t mine = std::int64_t{blockIdx.x} * tile + thread;
  if (thread >= tile || mine >= channels) return;
#pragma unroll
  for (int which = 0; which < (kProducts ? 2 : 1); ++which) {
    float sum = 0.0F;
    for (int row = 0; row < static_cast<int>(blockDim.y); ++row) sum += of_thread[which][row * tile + thread];
    partial[(std::int64_t{blockIdx.y} * (kProducts ? 2 : 1) + which) * channels + mine] = sum;
  }
}

/// Sets a gradient, or adds to it, as the sum over microbatches has it: a first -0 becomes 0.
__device__ inline void set_or_add(float value, bool accumulate, float* gradient) {
  *gradient = __fadd_rn(accumulate ? *gradient : 0.0F, value);
}

// Calls finish(channel, sum, product) for every channel.
template <bool kProducts, class Finish>
__global__ void __launch_bounds__(kMergeChannels* kMergeLanes)
    merge_sums_kernel(const float* partial, int slices, std::int64_t channels, Finish finish) {
  const std::int64_t channel = std::int64_t{blockIdx.x} * kMergeChannels + threadIdx.x;
  double sum = 0.0, product = 0.0;
  if (channel < channels) {
    for (int slice = static_cast<int>(threadIdx.y); slice < slices; slice += kMergeLanes) {
      const float* part = partial + std::int64_t{slice} * (kProducts ? 2 : 1) * channels + channel;
      sum += part[0];
      if constexpr (kProducts) product += part[channels];
    }
  }
  sum = sum_over_lanes(sum);
  if constexpr (kProducts) product = sum_over_lanes(product);
  if (channel < channels && threadIdx.y == 0) finish(channel, sum, product);
}

/// Calls finish(channel, sum, product) on the device for every channel; partial: of so many slices, from a
/// channel_sums_kernel.
template <bool kProducts, class Finish>
void merge_sums(const CudaState& state, const Tensor& partial, unsigned slices, std::int64_t channels, Finish finish) {
  launch_kernel(state, merge_grid(channels), dim3(kMergeChannels, kMergeLanes), merge_sums_kernel<kProducts, Finish>,
                partial.data<float>(), static_cast<int>(slices), channels, finish);
}

}  // namespace convoy::gpu
