// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation of the CPU backend, backward: one pass for the two sums per channel, one for the input's
// gradient, and one that adds the residual's. Sums run in float over a few rows and in double beyond; those of threads
// are merged in thread order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "layers/backend/onednn/batch_norm_bf16.h"
#include "layers/backend/onednn/batch_norm_rows.h"
#include "layers/backend/onednn/batch_norm_sums.h"
#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/relu_mask.h"
#include "layers/backend/onednn/vectorized.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

// Calls f(place, first channel, channels, g) for the blocks of rows [first, last), with what the mask lets through of
// dy there; for kernels that are compiled for several instruction sets, so f is inlined too.
template <class Floats, class T, class Mask, class F>
CONVOY_INLINE void for_masked_blocks(const T* dy, Mask mask, std::int64_t first, std::int64_t last,
                                     std::int64_t channels, F f) {
  float g[kMaskBlock];
  for (std::int64_t row = first; row < last; ++row) {
    for (std::int64_t block = 0; block < channels; block += kMaskBlock) {
      const std::int64_t count = std::min(kMaskBlock, channels - block), at = row * channels + block;
      mask.template pass<Floats>(dy + at, row, block, count, g);
      f(at, block, count, g);
    }
  }
}

// Adds the float sums to the double ones and clears them.
CONVOY_VECTORIZED void flush(std::int64_t count, float* sums, double* totals) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    totals[i] += sums[i];
    sums[i] = 0.0F;
  }
}

CONVOY_VECTORIZED void add_part(std::int64_t count, const double* part, double* totals) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) totals[i] += part[i];
}

// Sets, or adds to, dbeta and dgamma [channels].
CONVOY_VECTORIZED void set_parameter_gradients(std::int64_t channels, const double* sums, const double* products,
                                               const float* variance, float epsilon, bool accumulate, float* dbeta,
                                               float* dgamma) {
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto beta = static_cast<float>(sums[c]);
    const auto gamma = static_cast<float>(products[c] * inverse_std(variance[c], epsilon));
    dbeta[c] = accumulate ? dbeta[c] + beta : beta;
    dgamma[c] = accumulate ? dgamma[c] + gamma : gamma;
  }
}

// Those of BackwardCoefficients.
CONVOY_VECTORIZED void set_backward_coefficients(std::int64_t channels, const ops::BatchNormBackwardApply& op,
                                                 float* scale, float* slope, float* shift) {
  const float *variance = op.variance.data<float>(), *gamma = op.gamma.data<float>();
  const float *dgamma = op.dgamma.data<float>(), *dbeta = op.dbeta.data<float>();
  const float epsilon = op.epsilon;
  const auto count = static_cast<double>(op.count);
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) {
    const double inverse = inverse_std(variance[c], epsilon);
    const double factor = gamma[c] * inverse;
    scale[c] = static_cast<float>(factor);
    slope[c] = static_cast<float>(-factor * inverse * dgamma[c] / count);
    shift[c] = static_cast<float>(-factor * dbeta[c] / count);
  }
}

// Sets rows [first, last) of dx.
template <class Floats, class T, class Mask>
CONVOY_INLINE void backward_kernel(const T* dy, const T* x, Mask mask, BackwardCoefficients k, std::int64_t first,
                                   std::int64_t last, std::int64_t channels, T* dx) {
  const auto set = [=](std::int64_t at, std::int64_t block, std::int64_t count, const float* g)
      __attribute__((always_inline)) {
    CONVOY_INDEPENDENT
    for (std::int64_t lane = 0; lane < count; ++lane) {
      const std::int64_t c = block + lane;
      const float value = k.scale[c] * g[lane] + (k.slope[c] * (load(x[at + lane]) - k.mean[c]) + k.shift[c]);
      store(value, dx + at + lane);
    }
  };
  for_masked_blocks<Floats>(dy, mask, first, last, channels, set);
}

// Adds g to rows [first, last) of dresidual.
template <class Floats, class T, class Mask>
CONVOY_INLINE void residual_kernel(const T* dy, Mask mask, std::int64_t first, std::int64_t last, std::int64_t channels,
                                   T* dresidual) {
  const auto add = [=](std::int64_t at, std::int64_t, std::int64_t count, const float* g)
      __attribute__((always_inline)) {
    CONVOY_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) store(load(dresidual[at + c]) + g[c], dresidual + at + c);
  };
  for_masked_blocks<Floats>(dy, mask, first, last, channels, add);
}

// Sets rows [first, last) of masked to g.
template <class Floats, class T, class Mask>
CONVOY_INLINE void masked_kernel(const T* dy, Mask mask, std::int64_t first, std::int64_t last, std::int64_t channels,
                                 T* masked) {
  const auto set = [=](std::int64_t at, std::int64_t, std::int64_t count, const float* g)
      __attribute__((always_inline)) {
    CONVOY_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) store(g[c], masked + at + c);
  };
  for_masked_blocks<Floats>(dy, mask, first, last, channels, set);
}

// The rows of a bfloat16 mask from `row` on, as batch_norm_bf16.h takes them.
Bf16Mask mask_rows(const NoMask&, std::int64_t) { return {}; }
Bf16Mask mask_rows(const OutputMask<BFloat16>& mask, std::int64_t row) { return {.y = mask.y + row * mask.channels}; }
Bf16Mask mask_rows(const WordMask& mask, std::int64_t row) { return {.bits = mask.words + row * mask.row_words}; }

template <class T, class Mask>
void sum_gradients(const T* dy, const T* x, Mask mask, const float* mean, std::int64_t first, std::int64_t last,
                   std::int64_t channels, float* sums, float* products) {
  vectorized_pixels<T>([=](auto width, auto pixel) CONVOY_INLINE_LAMBDA {
    using Pixel = decltype(pixel);
    add_gradients<width>(static_cast<const Pixel*>(dy), static_cast<const Pixel*>(x), mask, mean, first, last, channels,
                         sums, products);
  });
}

// The kernels above, or those of batch_norm_bf16.h.

template <class T, class Mask>
void set_gradient(const T* dy, const T* x, Mask mask, const BackwardCoefficients& k, std::int64_t first,
                  std::int64_t last, std::int64_t channels, T* dx) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const std::int64_t at = first * channels;
    if (has_bf16_rows(channels)) {
      return backward_bf16(dy + at, x + at, mask_rows(mask, first), k, last - first, channels, dx + at);
    }
  }
  vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
    backward_kernel<Vector<float, width>>(dy, x, mask, k, first, last, channels, dx);
  });
}

template <class T, class Mask>
void sum_residual(const T* dy, Mask mask, std::int64_t first, std::int64_t last, std::int64_t channels, T* dresidual) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const std::int64_t at = first * channels;
    if (has_bf16_rows(channels)) {
      return add_residual_bf16(dy + at, mask_rows(mask, first), last - first, channels, dresidual + at);
    }
  }
  vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
    residual_kernel<Vector<float, width>>(dy, mask, first, last, channels, dresidual);
  });
}

// The mask of an operation: its own, or the output of its ReLU, computed again.
template <class Operation>
Tensor relu_mask(Backend& backend, const Operation& op) {
  if (op.mask || !op.relu) return op.mask;
  Tensor y = backend.tensor(op.x.shape(), op.x.dtype());
  backend.run(ops::BatchNormApply{op.x, op.mean, op.variance, op.gamma, op.beta, op.epsilon, ops::none(), true, y});
  return y;
}

}  // namespace

void OnednnBackend::run(const ops::BatchNormBackwardReduce& op) {
  if (run_apart(op)) return;
  const Tensor relu = relu_mask(*this, op);
  const ChannelRows view(op.x.shape());
  const std::int64_t channels = view.channels, threads = omp_get_max_threads();
  const std::int64_t stride = 2 * padded(channels);  // per thread: sums of g, sums of g * (x - mean)
  double* partial = scratch(static_cast<std::size_t>(threads * stride));
  std::fill_n(partial, threads * stride, 0.0);
  const Tensor work = tensor({threads, stride}, DType::kF32);
  if (rehearsing()) return;
  const float* center = op.mean.data<float>();
  dispatch_relu_mask(op.x, relu, [&](auto type, auto mask) {
    using T = decltype(type);
    const T *gradient = op.dy.data<T>(), *input = op.x.data<T>();
    float* floats = work.data<float>();
    parallel_ranges(view.rows, view.grain(), [=](std::int64_t first, std::int64_t last, int thread) {
      float* sums = floats + thread * stride;
      std::fill_n(sums, stride, 0.0F);
      for (std::int64_t row = first; row < last; row += kBlockRows<T>) {
        sum_gradients(gradient, input, mask, center, row, std::min(row + kBlockRows<T>, last), channels, sums,
                      sums + stride / 2);
        flush(stride, sums, partial + thread * stride);
      }
    });
  });
  for (std::int64_t t = 1; t < threads; ++t) add_part(stride, partial + t * stride, partial);
  set_parameter_gradients(channels, partial, partial + stride / 2, op.variance.data<float>(), op.epsilon, op.accumulate,
                          op.dbeta.data<float>(), op.dgamma.data<float>());
  if (!op.masked) return;
  dispatch_relu_mask(op.x, relu, [&](auto type, auto mask) {
    using T = decltype(type);
    const T* gradient = op.dy.data<T>();
    T* masked = op.masked.data<T>();
    parallel_ranges(view.rows, view.grain(), [=](std::int64_t first, std::int64_t last, int) {
      vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
        masked_kernel<Vector<float, width>>(gradient, mask, first, last, channels, masked);
      });
    });
  });
}

void OnednnBackend::run(const ops::BatchNormBackwardApply& op) {
  if (run_apart(op)) return;
  const Tensor relu = relu_mask(*this, op);
  const ChannelRows view(op.x.shape());
  const std::int64_t channels = view.channels;
  const Tensor coefficients = tensor({3, padded(channels)}, DType::kF32);
  if (rehearsing()) return;
  float *scale = coefficients.data<float>(), *slope = scale + padded(channels), *shift = slope + padded(channels);
  set_backward_coefficients(channels, op, scale, slope, shift);
  const BackwardCoefficients k{scale, slope, shift, op.mean.data<float>()};
  dispatch_relu_mask(op.x, relu, [&](auto type, auto mask) {
    using T = decltype(type);
    const T *gradient = op.dy.data<T>(), *input = op.x.data<T>();
    T* dinput = op.dx.data<T>();
    parallel_ranges(view.rows, view.grain(), [=](std::int64_t first, std::int64_t last, int) {
      set_gradient(gradient, input, mask, k, first, last, channels, dinput);
    });
  });
  if (!op.gamma_gradient) return;
  set_or_add(op.dgamma, op.accumulate, op.gamma_gradient);
  set_or_add(op.dbeta, op.accumulate, op.beta_gradient);
}

void OnednnBackend::run(const ops::BatchNormBackwardResidual& op) {
  const ChannelRows view(op.dy.shape());
  const std::int64_t channels = view.channels;
  dispatch_relu_mask(op.dy, op.mask, [&](auto type, auto mask) {
    using T = decltype(type);
    const T* gradient = op.dy.data<T>();
    T* sum = op.dresidual.data<T>();
    parallel_ranges(view.rows, view.grain(), [=](std::int64_t first, std::int64_t last, int) {
      sum_residual(gradient, mask, first, last, channels, sum);
    });
  });
}

}  // namespace convoy
