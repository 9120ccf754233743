// SPDX-License-Identifier: Apache-2.0
//
// Batch norm statistics from sums that a convolution has taken of its output: of y - pivot and of its square, in
// float32. Where the mean is far from the pivot, such that the difference of the two sums would lose more than 6 bits
// of the variance (or of epsilon, beside which less does not matter), the channel is read again around its mean. That
// is rare: the pivot is the running mean.
#include "layers/backend/cuda/batch_norm_sums.h"

#include "layers/backend/cuda/batch_norm.cuh"

namespace convoy::gpu {

namespace {

constexpr double kMaxOffset = 63.0;  // (mean - pivot)^2 / variance

// sums [2, channels], y [rows, channels].
template <class T>
__global__ void __launch_bounds__(kMergeChannels* kMergeLanes)
    merge_pivot_sums_kernel(const float* sums, const float* pivot, const T* y, std::int64_t rows, std::int64_t channels,
                            MomentOutputs out) {
  CONVOY_SHARED(int, far, [kMergeChannels]);
  const std::int64_t channel = std::int64_t{blockIdx.x} * kMergeChannels + threadIdx.x;
  const bool mine = channel < channels;
  const auto n = static_cast<double>(rows);
  double mean = 0.0, m2 = 0.0;
  if (mine) {
    const double sum = sums[channel], offset = sum / n;
    mean = offset + (pivot != nullptr ? pivot[channel] : 0.0F);
    m2 = sums[channels + channel] - sum * offset;
    if (threadIdx.y == 0) far[threadIdx.x] = sum * offset > kMaxOffset * (m2 + n * out.epsilon) ? 1 : 0;
  } else if (threadIdx.y == 0) {
    far[threadIdx.x] = 0;
  }
  __syncthreads();
  int any = 0;
  for (int i = 0; i < kMergeChannels; ++i) any |= far[i];
  if (any != 0) {
    double sum = 0.0, squares = 0.0;
    for (std::int64_t row = threadIdx.y; mine && row < rows; row += kMergeLanes) {
      const double distance = load(y[row * channels + channel]) - mean;
      sum += distance;
      squares += distance * distance;
    }
    sum = sum_over_lanes(sum);
    squares = sum_over_lanes(squares);
    if (far[threadIdx.x] != 0) {
      mean += sum / n;
      m2 = squares - sum * (sum / n);
    }
  }
  if (!mine || threadIdx.y != 0) return;
  const double variance = m2 / n;
  set_moments(static_cast<float>(mean), static_cast<float>(variance < 0.0 ? 0.0 : variance), channel, channels, out);
}

}  // namespace

void finish_statistics(const CudaState& state, const ops::BatchNormStatistics& op, const Tensor& sums) {
  const std::int64_t channels = op.x.shape()[1];
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    launch_kernel(state, merge_grid(channels), dim3(kMergeChannels, kMergeLanes), merge_pivot_sums_kernel<T>,
                  sums.data<float>(), op.pivot.data<float>(), op.x.data<const T>(), op.x.size() / channels, channels,
                  moment_outputs(op));
  });
}

}  // namespace convoy::gpu
