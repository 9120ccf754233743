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

// Calls f(place, channel, g) for all vectors of rows [first, last), with what the mask lets through of dy there. place:
// of the vector's first element, which is of that channel.
template <int width, class Pixel, class Mask, class F>
CONVOY_INLINE void for_masked_vectors(const Pixel* dy, Mask mask, std::int64_t first, std::int64_t last,
                                      std::int64_t channels, F f) {
  for (std::int64_t row = first; row < last; ++row) {
    const auto pass = [=](auto c, auto lanes, auto count) CONVOY_INLINE_LAMBDA {
      constexpr int vectors = count;
      Vector<float, lanes> g[vectors];
      mask.template load_masked<vectors>(dy + row * channels + c, row, c, g);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) f(row * channels + c + v * lanes, c + v * lanes, g[v]);
    };
    for_vectors<width>(channels, pass);
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

// Calls kernel(VectorWidth, Pixel) for rows of this many channels, with how to convert T.
template <class T, class Kernel>
void run_rows(std::int64_t channels, const Kernel& kernel) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (has_bf16_rows(channels)) return vectorized_pixels<T>(kernel);
  }
  vectorized([&](auto width) CONVOY_INLINE_LAMBDA { kernel(width, T()); });
}

template <class T, class Mask>
void sum_gradients(const T* dy, const T* x, Mask mask, const float* mean, std::int64_t first, std::int64_t last,
                   std::int64_t channels, float* sums, float* products) {
  run_rows<T>(channels, [=](auto width, auto pixel) CONVOY_INLINE_LAMBDA {
    using Pixel = decltype(pixel);
    add_gradients<width>(static_cast<const Pixel*>(dy), static_cast<const Pixel*>(x), mask, mean, first, last, channels,
                         sums, products);
  });
}

// Sets rows [first, last) of dx.
template <class T, class Mask>
void set_gradient(const T* dy, const T* x, Mask mask, const BackwardCoefficients& k, std::int64_t first,
                  std::int64_t last, std::int64_t channels, T* dx) {
  run_rows<T>(channels, [=](auto width, auto pixel) CONVOY_INLINE_LAMBDA {
    using Pixel = decltype(pixel);
    const auto* input = static_cast<const Pixel*>(x);
    auto* result = static_cast<Pixel*>(dx);
    const auto set = [=](std::int64_t at, std::int64_t c, const auto& g) CONVOY_INLINE_LAMBDA {
      std::remove_cvref_t<decltype(g)> value, scale, slope, shift, center;
      load(input + at, value);
      load(k.scale + c, scale);
      load(k.slope + c, slope);
      load(k.shift + c, shift);
      load(k.mean + c, center);
      store(scale * g + (slope * (value - center) + shift), result + at);
    };
    for_masked_vectors<width>(static_cast<const Pixel*>(dy), mask, first, last, channels, set);
  });
}

// Adds g to rows [first, last) of dresidual.
template <class T, class Mask>
void sum_residual(const T* dy, Mask mask, std::int64_t first, std::int64_t last, std::int64_t channels, T* dresidual) {
  run_rows<T>(channels, [=](auto width, auto pixel) CONVOY_INLINE_LAMBDA {
    using Pixel = decltype(pixel);
    auto* result = static_cast<Pixel*>(dresidual);
    const auto add = [=](std::int64_t at, std::int64_t, const auto& g) CONVOY_INLINE_LAMBDA {
      std::remove_cvref_t<decltype(g)> sum;
      load(result + at, sum);
      store(sum + g, result + at);
    };
    for_masked_vectors<width>(static_cast<const Pixel*>(dy), mask, first, last, channels, add);
  });
}

// Sets rows [first, last) of masked to g.
template <class T, class Mask>
void set_masked(const T* dy, Mask mask, std::int64_t first, std::int64_t last, std::int64_t channels, T* masked) {
  vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
    const auto set = [=](std::int64_t at, std::int64_t, const auto& g) CONVOY_INLINE_LAMBDA { store(g, masked + at); };
    for_masked_vectors<width>(dy, mask, first, last, channels, set);
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
      set_masked(gradient, mask, first, last, channels, masked);
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
