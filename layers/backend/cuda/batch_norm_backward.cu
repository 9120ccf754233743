// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation of the CUDA backend, backward: one pass for the two sums per channel, one for the gradients of
// input and residual, as dx = scale * g + (slope * (x - mean) + shift).
#include <utility>

#include "layers/backend/cuda/channel_sums.cuh"
#include "layers/backend/cuda/cuda_backend.h"

namespace convoy {

namespace {

using gpu::kThreads;
using gpu::NormInputs;
using gpu::ReluMask;
using gpu::RowSlices;
using gpu::RowTiles;
using gpu::Vector;

struct SetSums {
  const float* variance;
  float epsilon;
  float *dgamma, *dbeta;
  bool accumulate;
  __device__ void operator()(std::int64_t channel, double sum, double product) const {
    const auto beta = static_cast<float>(sum);
    const auto gamma = static_cast<float>(product / sqrt(static_cast<double>(variance[channel]) + epsilon));
    dbeta[channel] = accumulate ? dbeta[channel] + beta : beta;
    dgamma[channel] = accumulate ? dgamma[channel] + gamma : gamma;
  }
};

// [channels] each; `share` is 1 / count.
struct BackwardInputs {
  NormInputs norm;
  const float *dgamma, *dbeta;
  float share;
  float *gamma_gradient, *beta_gradient;  // of the parameters, or null
  bool accumulate;
};

template <int kCount>
struct Coefficients {
  float scale[kCount], slope[kCount], shift[kCount], mean[kCount];
  gpu::Affine<kCount> forward;  // of a mask that is computed again
};

template <class T>
struct Gradients {
  const T *dy, *x, *y;
  T* dx;
};

// For kRows rows, `stride` elements apart; dx may be dy.
template <int kRows, ReluMask kMask, class T, int kCount>
__device__ void backward_rows(const Gradients<T>& g, std::int64_t at, std::int64_t stride,
                              const Coefficients<kCount>& k) {
  Vector<T, kCount> dy[kRows], x[kRows], y[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    dy[row] = gpu::load_vector<kCount>(g.dy + at + row * stride, 0);
    x[row] = gpu::load_vector<kCount>(g.x + at + row * stride, 0);
    if constexpr (kMask == ReluMask::kOutput) y[row] = gpu::load_vector<kCount>(g.y + at + row * stride, 0);
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const Vector<T, kCount>& other = kMask == ReluMask::kOutput ? y[row] : x[row];
    float values[kCount];
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      const float gradient =
          gpu::masked<kMask>(dy[row].lanes[lane], other.lanes[lane], k.forward.scale[lane], k.forward.shift[lane]);
      const float centred = gpu::load(x[row].lanes[lane]) - k.mean[lane];
      values[lane] = fmaf(k.scale[lane], gradient, fmaf(k.slope[lane], centred, k.shift[lane]));
    }
    gpu::store_lanes(values, g.dx + at + row * stride);
  }
}

template <class T, int kCount, ReluMask kMask>
__global__ void __launch_bounds__(kThreads, 3) backward_apply_kernel(Gradients<T> g, BackwardInputs in, RowSlices slices) {
  constexpr int kTogether = 2;
  const std::int64_t channels = slices.channels, channel = gpu::thread_channel<kCount>();
  if (channel >= channels) return;
  Coefficients<kCount> k;
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) {
    const std::int64_t c = channel + lane;
    const float inverse = gpu::inverse_std(in.norm.variance[c], in.norm.epsilon), factor = in.norm.gamma[c] * inverse;
    k.mean[lane] = in.norm.mean[c];
    k.scale[lane] = factor;
    k.slope[lane] = -factor * inverse * (in.dgamma[c] * in.share);
    k.shift[lane] = -factor * (in.dbeta[c] * in.share);
    if (in.gamma_gradient != nullptr && blockIdx.y == 0 && threadIdx.y == 0) {
      gpu::set_or_add(in.dgamma[c], in.accumulate, in.gamma_gradient + c);
      gpu::set_or_add(in.dbeta[c], in.accumulate, in.beta_gradient + c);
    }
  }
  if constexpr (kMask == ReluMask::kRecomputed) gpu::load_affine(in.norm, channel, k.forward);
  const std::int64_t first = blockIdx.y * slices.slice_rows, end = first + slices.rows_of(blockIdx.y);
  const std::int64_t step = blockDim.y, stride = step * channels;
  std::int64_t row = first + threadIdx.y;
  for (; row + (kTogether - 1) * step < end; row += kTogether * step) {
    backward_rows<kTogether, kMask>(g, row * channels + channel, stride, k);
  }
  for (; row < end; row += step) backward_rows<1, kMask>(g, row * channels + channel, stride, k);
}

}  // namespace

void CudaBackend::run(const ops::BatchNormBackwardReduce& op) {
  gpu::channel_sums<true>(
      *state_, *this, {op.dy, op.x, op.mask, op.relu, gpu::norm_inputs(op), op.masked},
      SetSums{op.variance.data<float>(), op.epsilon, op.dgamma.data<float>(), op.dbeta.data<float>(), op.accumulate});
}

void CudaBackend::run(const ops::BatchNormBackwardApply& op) {
  const BackwardInputs in{gpu::norm_inputs(op),
                          op.dgamma.data<float>(),
                          op.dbeta.data<float>(),
                          static_cast<float>(1.0 / op.count),
                          op.gamma_gradient.data<float>(),
                          op.beta_gradient.data<float>(),
                          op.accumulate};
  if (op.x.size() == 0) {
    for (const auto& [sum, gradient] :
         {std::pair{&op.dgamma, &op.gamma_gradient}, std::pair{&op.dbeta, &op.beta_gradient}}) {
      if (!*gradient) continue;
      if (!op.accumulate) zero(*gradient);
      run(ops::Axpy{1.0F, *sum, *gradient});
    }
    return;
  }
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const Gradients<T> g{op.dy.data<T>(), op.x.data<T>(), op.mask.data<T>(), op.dx.data<T>()};
    const auto launch = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const RowTiles tiles = gpu::row_tiles(*state_, op.x.shape(), kCount, 16);
      gpu::dispatch_mask(static_cast<bool>(op.mask), op.relu, [&](auto mask) {
        gpu::launch_kernel(*state_, tiles.grid, tiles.block, backward_apply_kernel<T, kCount, decltype(mask)::value>, g,
                           in, tiles.slices);
      });
    };
    gpu::dispatch_lanes<T>(op.x.shape()[1], launch, g.dy, g.x, g.y, g.dx);
  });
}

}  // namespace convoy
