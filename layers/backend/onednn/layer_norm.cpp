// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation of the CPU backend: one thread does a row, whose channels are contiguous. Sums over a row run in
// 16 float lanes, those over rows in double; the sums of threads are merged in thread order.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

// The sum of term(i) over i < count, in an order that depends on count alone and that vectorises.
template <class Term>
CONVOY_INLINE float lane_sum(std::int64_t count, Term term) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::int64_t lane = 0; i + lane < count; ++lane) lanes[lane] += term(i + lane);
  float sum = 0.0F;
  for (const float lane : lanes) sum += lane;
  return sum;
}

struct Statistics {
  float *mean, *inverse_std;  // by row
};

// Rows [first, last) of x and y.
template <class T>
CONVOY_VECTORIZED void forward_kernel(const T* x, const float* gamma, const float* beta, float epsilon,
                                      std::int64_t first, std::int64_t last, std::int64_t channels, T* y,
                                      Statistics statistics) {
  const auto count = static_cast<float>(channels);
  for (std::int64_t row = first; row < last; ++row) {
    const T* in = x + row * channels;
    T* out = y + row * channels;
    const float mean = lane_sum(channels, [=](std::int64_t c) { return load(in[c]); }) / count;
    const float variance = lane_sum(channels,
                                    [=](std::int64_t c) {
                                      const float centred = load(in[c]) - mean;
                                      return centred * centred;
                                    }) /
                           count;
    const float inverse_std = 1.0F / std::sqrt(variance + epsilon);
    CONVOY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c) {
      store(gamma[c] * ((load(in[c]) - mean) * inverse_std) + beta[c], out + c);
    }
    statistics.mean[row] = mean;
    statistics.inverse_std[row] = inverse_std;
  }
}

template <class T>
CONVOY_VECTORIZED void backward_input_kernel(const T* dy, const T* x, const float* gamma, Statistics statistics,
                                             std::int64_t first, std::int64_t last, std::int64_t channels, T* dx) {
  const auto count = static_cast<float>(channels);
  for (std::int64_t row = first; row < last; ++row) {
    const T *gradient = dy + row * channels, *in = x + row * channels;
    T* out = dx + row * channels;
    const float mean = statistics.mean[row], inverse_std = statistics.inverse_std[row];
    const auto g = [=](std::int64_t c) { return gamma[c] * load(gradient[c]); };
    const auto normalized = [=](std::int64_t c) { return (load(in[c]) - mean) * inverse_std; };
    const float mean_g = lane_sum(channels, g) / count;
    const float mean_product = lane_sum(channels, [=](std::int64_t c) { return g(c) * normalized(c); }) / count;
    CONVOY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c) {
      store(inverse_std * (g(c) - mean_g - normalized(c) * mean_product), out + c);
    }
  }
}

// Adds those of rows [first, last) to products and sums, [channels] each.
template <class T>
CONVOY_VECTORIZED void backward_weight_kernel(const T* dy, const T* x, Statistics statistics, std::int64_t first,
                                              std::int64_t last, std::int64_t channels, double* products,
                                              double* sums) {
  for (std::int64_t row = first; row < last; ++row) {
    const T *gradient = dy + row * channels, *in = x + row * channels;
    const float mean = statistics.mean[row], inverse_std = statistics.inverse_std[row];
    CONVOY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c) {
      const float g = load(gradient[c]);
      products[c] += g * ((load(in[c]) - mean) * inverse_std);
      sums[c] += g;
    }
  }
}

Statistics statistics_of(const Tensor& mean, const Tensor& inverse_std) {
  return {mean.data<float>(), inverse_std.data<float>()};
}

}  // namespace

void OnednnBackend::run(const ops::LayerNormForward& op) {
  const ChannelRows view(op.x.shape());
  const float *gamma = op.gamma.data<float>(), *beta = op.beta.data<float>(), epsilon = op.epsilon;
  const Statistics statistics = statistics_of(op.mean, op.inverse_std);
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    parallel_ranges(view.rows, view.grain(), [=](std::int64_t first, std::int64_t last, int) {
      forward_kernel(x, gamma, beta, epsilon, first, last, view.channels, y, statistics);
    });
  });
}

void OnednnBackend::run(const ops::LayerNormBackwardInput& op) {
  const ChannelRows view(op.x.shape());
  const float* gamma = op.gamma.data<float>();
  const Statistics statistics = statistics_of(op.mean, op.inverse_std);
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *dy = op.dy.data<T>(), *x = op.x.data<T>();
    T* dx = op.dx.data<T>();
    parallel_ranges(view.rows, view.grain(), [=](std::int64_t first, std::int64_t last, int) {
      backward_input_kernel(dy, x, gamma, statistics, first, last, view.channels, dx);
    });
  });
}

void OnednnBackend::run(const ops::LayerNormBackwardWeight& op) {
  if (rehearsing()) return;
  const ChannelRows view(op.x.shape());
  const std::int64_t channels = view.channels, threads = omp_get_max_threads(), stride = 2 * channels;
  double* partial = scratch(static_cast<std::size_t>(threads * stride));  // per thread: products, sums
  std::fill_n(partial, threads * stride, 0.0);
  const Statistics statistics = statistics_of(op.mean, op.inverse_std);
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *dy = op.dy.data<T>(), *x = op.x.data<T>();
    parallel_ranges(view.rows, view.grain(), [=](std::int64_t first, std::int64_t last, int thread) {
      double* products = partial + thread * stride;
      backward_weight_kernel(dy, x, statistics, first, last, channels, products, products + channels);
    });
  });
  float* const gradients[] = {op.dgamma.data<float>(), op.dbeta.data<float>()};
  for (std::int64_t i = 0; i < stride; ++i) {
    double sum = 0.0;
    for (std::int64_t t = 0; t < threads; ++t) sum += partial[t * stride + i];
    float& gradient = gradients[i / channels][i % channels];
    // Rounded before it is added, as the sum of another rank would be.
    gradient = (op.accumulate ? gradient : 0.0F) + static_cast<float>(sum);
  }
}

}  // namespace convoy
