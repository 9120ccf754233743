// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation of the CUDA backend, backward: one pass for the two sums per channel, one for the gradient of
// the input, as dx = scale * g + (slope * (x - mean) + shift).
#include "layers/backend/cuda/channel_sums.cuh"
#include "layers/backend/cuda/cuda_backend.h"

namespace convoy {

namespace {

using gpu::kThreads;
using gpu::NormInputs;
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

template <class T, template <class> class Gradient>
struct Gradients {
  Gradient<T> gradient;
  const T *x, *y;
  T* dx;
};

// For kRows rows; dx may be x.
template <int kRows, ReluMask kMask, class T, template <class> class Gradient, int kCount>
__device__ void backward_rows(const Gradients<T, Gradient>& g, const gpu::RowPlace& place,
                              const Coefficients<kCount>& k) {
  const std::int64_t at = place.row * place.channels + place.channel, stride = place.step * place.channels;
  decltype(g.gradient.template load<kCount>(0, 0)) dy[kRows];
  Vector<T, kCount> x[kRows], y[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    dy[row] = g.gradient.template load<kCount>(place.row + row * place.step, place.channel);
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

template <class T, template <class> class Gradient, int kCount, ReluMask kMask>
__global__ void __launch_bounds__(kThreads, 3)
    backward_apply_kernel(Gradients<T, Gradient> g, BackwardInputs in, RowSlices slices) {
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
  const std::int64_t step = blockDim.y;
  std::int64_t row = first + threadIdx.y;
  for (; row + (kTogether - 1) * step < end; row += kTogether * step) {
    backward_rows<kTogether, kMask>(g, gpu::RowPlace{row, step, channel, channels}, k);
  }
  for (; row < end; row += step) backward_rows<1, kMask>(g, gpu::RowPlace{row, step, channel, channels}, k);
}

// Calls launch(lanes, gradient, mask) with constants and with a StoredGradient or a PooledGradient, whatever the
// operation has; others: what else is read and written as vectors. Masks that are computed again take registers for
// scale and shift, so threads have fewer channels.
template <class T, class Operation, class Launch, class... Array>
void dispatch_gradient(const Operation& op, const Launch& launch, const Array*... others) {
  constexpr int kFew = 4;
  using Recomputed = std::integral_constant<ReluMask, ReluMask::kRecomputed>;
  const std::int64_t channels = op.x.shape()[1];
  if (op.prologue != nullptr) {
    const ops::MaxPoolBackward& pool = *op.prologue;
    const gpu::PooledGradient<T> gradient{pool.dy.template data<T>(), pool.argmax.template data<std::uint8_t>(),
                                          gpu::geometry(pool.spec, op.x.shape(), pool.dy.shape())};
    const auto with = [&](auto lanes) { launch(lanes, gradient, Recomputed{}); };
    return gpu::dispatch_lanes<T, kFew>(channels, with, gradient.dy, gradient.argmax, others...);
  }
  const gpu::StoredGradient<T> gradient{op.dy.template data<T>(), channels};
  if (!op.mask && op.relu) {
    const auto with = [&](auto lanes) { launch(lanes, gradient, Recomputed{}); };
    return gpu::dispatch_lanes<T, kFew>(channels, with, gradient.dy, others...);
  }
  const auto with = [&](auto lanes) {
    if (op.mask) return launch(lanes, gradient, std::integral_constant<ReluMask, ReluMask::kOutput>{});
    launch(lanes, gradient, std::integral_constant<ReluMask, ReluMask::kNone>{});
  };
  gpu::dispatch_lanes<T>(channels, with, gradient.dy, others...);
}

}  // namespace

void CudaBackend::run(const ops::BatchNormBackwardReduce& op) {
  if (!fuses(op) && run_apart(op)) return;
  const std::int64_t channels = op.x.shape()[1];
  Tensor partial;
  unsigned slices = 0;  // none for an empty batch
  if (op.x.size() > 0) {
    gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
      using T = decltype(type);
      const T *x = op.x.data<T>(), *y = op.mask.data<T>();
      T* masked = op.masked.data<T>();
      const auto launch = [&]<template <class> class Gradient>(auto lanes, const Gradient<T>& gradient, auto mask) {
        constexpr int kCount = decltype(lanes)::value;
        const RowTiles tiles = gpu::row_tiles(*state_, op.x.shape(), kCount, 3);
        slices = tiles.grid.y;
        partial = tensor({slices, 2, channels}, DType::kF32);
        gpu::launch_kernel(*state_, tiles.grid, tiles.block,
                           gpu::channel_sums_kernel<T, Gradient, kCount, decltype(mask)::value, true>,
                           gpu::SumInputs<T, Gradient>{gradient, x, y, gpu::norm_inputs(op), masked}, tiles.slices,
                           partial.data<float>());
      };
      dispatch_gradient<T>(op, launch, x, y, masked);
    });
  }
  gpu::merge_sums<true>(
      *state_, partial, slices, channels,
      SetSums{op.variance.data<float>(), op.epsilon, op.dgamma.data<float>(), op.dbeta.data<float>(), op.accumulate});
}

void CudaBackend::run(const ops::BatchNormBackwardApply& op) {
  if (!fuses(op) && run_apart(op)) return;
  const BackwardInputs in{gpu::norm_inputs(op),
                          op.dgamma.data<float>(),
                          op.dbeta.data<float>(),
                          static_cast<float>(1.0 / op.count),
                          op.gamma_gradient.data<float>(),
                          op.beta_gradient.data<float>(),
                          op.accumulate};
  if (op.x.size() == 0) {
    if (!op.gamma_gradient) return;
    set_or_add(op.dgamma, op.accumulate, op.gamma_gradient);
    set_or_add(op.dbeta, op.accumulate, op.beta_gradient);
    return;
  }
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *x = op.x.data<T>(), *y = op.mask.data<T>();
    T* dx = op.dx.data<T>();
    const auto launch = [&]<template <class> class Gradient>(auto lanes, const Gradient<T>& gradient, auto mask) {
      constexpr int kCount = decltype(lanes)::value;
      const RowTiles tiles = gpu::row_tiles(*state_, op.x.shape(), kCount, 16);
      gpu::launch_kernel(*state_, tiles.grid, tiles.block,
                         backward_apply_kernel<T, Gradient, kCount, decltype(mask)::value>,
                         Gradients<T, Gradient>{gradient, x, y, dx}, in, tiles.slices);
    };
    dispatch_gradient<T>(op, launch, x, y, dx);
  });
}

}  // namespace convoy
