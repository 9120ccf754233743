// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation of the CUDA backend, backward: one pass for the two sums per channel, one for the gradients of
// input and residual, as dx = scale * g + (slope * (x - mean) + shift).
#include "layers/backend/cuda/channel_sums.cuh"
#include "layers/backend/cuda/cuda_backend.h"

namespace convoy {

namespace {

using gpu::kThreads;
using gpu::RowSlices;
using gpu::RowTiles;
using gpu::Vector;

struct SetGradients {
  const float* variance;
  float epsilon;
  float *dgamma, *dbeta;
  float *gamma_gradient, *beta_gradient;  // or null
  bool accumulate;
  __device__ void operator()(std::int64_t channel, double sum, double product) const {
    const auto beta = static_cast<float>(sum);
    const auto gamma = static_cast<float>(product / sqrt(static_cast<double>(variance[channel]) + epsilon));
    dbeta[channel] = beta;
    dgamma[channel] = gamma;
    if (gamma_gradient == nullptr) return;
    gpu::set_or_add(gamma, accumulate, gamma_gradient + channel);
    gpu::set_or_add(beta, accumulate, beta_gradient + channel);
  }
};

// [channels] each; `share` is 1 / count.
struct BackwardInputs {
  const float *mean, *variance, *gamma, *dgamma, *dbeta;
  float share, epsilon;
};

template <int kCount>
struct Coefficients {
  float scale[kCount], slope[kCount], shift[kCount], mean[kCount];
};

template <class T>
struct Gradients {
  const T *dy, *x, *y;
  T* dx;
};

// For kRows rows, `stride` elements apart; dx may be dy.
template <int kRows, bool kRelu, class T, int kCount>
__device__ void backward_rows(const Gradients<T>& g, std::int64_t at, std::int64_t stride,
                              const Coefficients<kCount>& k) {
  Vector<T, kCount> dy[kRows], x[kRows], y[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    dy[row] = gpu::load_vector<kCount>(g.dy + at + row * stride, 0);
    x[row] = gpu::load_vector<kCount>(g.x + at + row * stride, 0);
    if constexpr (kRelu) y[row] = gpu::load_vector<kCount>(g.y + at + row * stride, 0);
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    float values[kCount];
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      const float gradient = gpu::masked<kRelu>(dy[row].lanes[lane], y[row].lanes[lane]);
      const float centred = gpu::load(x[row].lanes[lane]) - k.mean[lane];
      values[lane] = fmaf(k.scale[lane], gradient, fmaf(k.slope[lane], centred, k.shift[lane]));
    }
    gpu::store_lanes(values, g.dx + at + row * stride);
  }
}

template <class T, int kCount, bool kRelu>
__global__ void __launch_bounds__(kThreads) backward_apply_kernel(Gradients<T> g, BackwardInputs in, RowSlices slices) {
  constexpr int kTogether = 2;
  const std::int64_t channels = slices.channels, channel = gpu::thread_channel<kCount>();
  if (channel >= channels) return;
  Coefficients<kCount> k;
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) {
    const std::int64_t c = channel + lane;
    const float inverse = 1.0F / sqrtf(in.variance[c] + in.epsilon), factor = in.gamma[c] * inverse;
    k.mean[lane] = in.mean[c];
    k.scale[lane] = factor;
    k.slope[lane] = -factor * inverse * (in.dgamma[c] * in.share);
    k.shift[lane] = -factor * (in.dbeta[c] * in.share);
  }
  const std::int64_t first = blockIdx.y * slices.slice_rows, end = first + slices.rows_of(blockIdx.y);
  const std::int64_t step = blockDim.y, stride = step * channels;
  std::int64_t row = first + threadIdx.y;
  for (; row + (kTogether - 1) * step < end; row += kTogether * step) {
    backward_rows<kTogether, kRelu>(g, row * channels + channel, stride, k);
  }
  for (; row < end; row += step) backward_rows<1, kRelu>(g, row * channels + channel, stride, k);
}

}  // namespace

void CudaBackend::run(const ops::BatchNormBackwardReduce& op) {
  gpu::channel_sums<true>(
      *state_, *this, op.dy, op.x, op.mask, op.mean.data<float>(),
      SetGradients{op.variance.data<float>(), op.epsilon, op.dgamma.data<float>(), op.dbeta.data<float>(),
                   op.gamma_gradient.data<float>(), op.beta_gradient.data<float>(), op.accumulate});
}

void CudaBackend::run(const ops::BatchNormBackwardApply& op) {
  if (op.x.size() == 0) return;
  const BackwardInputs in{op.mean.data<float>(),
                          op.variance.data<float>(),
                          op.gamma.data<float>(),
                          op.dgamma.data<float>(),
                          op.dbeta.data<float>(),
                          static_cast<float>(1.0 / op.count),
                          op.epsilon};
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const Gradients<T> g{op.dy.data<T>(), op.x.data<T>(), op.mask.data<T>(), op.dx.data<T>()};
    const auto launch = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const RowTiles tiles = gpu::row_tiles(*state_, op.x.shape(), kCount, 16);
      gpu::dispatch_flags(static_cast<bool>(op.mask), true, [&](auto relu, auto) {
        gpu::launch_kernel(*state_, tiles.grid, tiles.block, backward_apply_kernel<T, kCount, decltype(relu)::value>, g,
                           in, tiles.slices);
      });
    };
    gpu::dispatch_lanes<T>(op.x.shape()[1], launch, g.dy, g.x, g.y, g.dx);
  });
}

}  // namespace convoy
