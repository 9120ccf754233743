// SPDX-License-Identifier: Apache-2.0
//
// Smooth activation functions of the CPU backend, in loops that compilers vectorise: they need no more than e^x, which
// is computed here. oneDNN's post-ops and primitives turn NaN into a number.
#include <bit>
#include <cstdint>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kGrain = 8192;  // elements that make a part worth a thread

// e^x = power * (1 + rest): power is 2^n, and rest = e^r - 1 with |r| <= ln(2) / 2 by its Taylor series, whose error is
// below 6e-9. Beyond +-87, near the ends of float32, x is cut off; NaN stays one.
struct Exponential {
  float power, rest;
  CONVOY_INLINE explicit Exponential(float x) {
    constexpr float kEnd = 87.0F, kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: what is added to it has no fraction left
    const float inside = x > kEnd ? kEnd : (x < -kEnd ? -kEnd : x);
    const float shifted = inside * kLog2E + kRound;
    const float n = shifted - kRound;
    const float r = (inside - n * kLn2High) - n * kLn2Low;
    float series = 1.0F / 5040.0F;
    series = series * r + 1.0F / 720.0F;
    series = series * r + 1.0F / 120.0F;
    series = series * r + 1.0F / 24.0F;
    series = series * r + 1.0F / 6.0F;
    series = series * r + 0.5F;
    rest = series * r * r + r;
    // The last bits of `shifted` are n.
    power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127U) << 23);
  }
  [[nodiscard]] CONVOY_INLINE float value() const { return power * rest + power; }
  [[nodiscard]] CONVOY_INLINE float minus_one() const { return power * rest + (power - 1.0F); }
};

CONVOY_INLINE float sigmoid(float x) { return 1.0F / (1.0F + Exponential(-x).value()); }

// The normal distribution function, by erf of Abramowitz & Stegun 7.1.26, whose error is below 1.5e-7.
CONVOY_INLINE float normal_distribution(float x) {
  const float z = (x < 0.0F ? -x : x) * 0.70710678F;
  const float t = 1.0F / (1.0F + 0.3275911F * z);
  float series = 1.061405429F;
  series = series * t - 1.453152027F;
  series = series * t + 1.421413741F;
  series = series * t - 0.284496736F;
  series = series * t + 0.254829592F;
  const float outside = 0.5F * series * t * Exponential(-z * z).value();  // beyond |x|, on one side
  return x < 0.0F ? outside : 1.0F - outside;
}

struct Tanh {
  static CONVOY_INLINE float value(float x) {
    const float e = Exponential(2.0F * x).minus_one();
    return e / (e + 2.0F);
  }
  static CONVOY_INLINE float slope(float x) {
    const float y = value(x);
    return 1.0F - y * y;
  }
};

struct Sigmoid {
  static CONVOY_INLINE float value(float x) { return sigmoid(x); }
  static CONVOY_INLINE float slope(float x) {
    const float y = sigmoid(x);
    return y * (1.0F - y);
  }
};

struct Gelu {
  static CONVOY_INLINE float value(float x) { return x * normal_distribution(x); }
  static CONVOY_INLINE float slope(float x) {
    constexpr float kDensity = 0.39894228F;  // of the normal distribution at 0: 1 / sqrt(2 pi)
    return normal_distribution(x) + x * kDensity * Exponential(-0.5F * x * x).value();
  }
};

struct Silu {
  static CONVOY_INLINE float value(float x) { return x * sigmoid(x); }
  static CONVOY_INLINE float slope(float x) {
    const float s = sigmoid(x);
    return s * (1.0F + x * (1.0F - s));
  }
};

template <class F, class T>
CONVOY_VECTORIZED void forward_kernel(const T* x, T* y, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) store(F::value(load(x[i])), y + i);
}

template <class F, class T>
CONVOY_VECTORIZED void backward_kernel(const T* dy, const T* x, T* dx, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) store(load(dy[i]) * F::slope(load(x[i])), dx + i);
}

template <class Body>
void dispatch_function(ActivationFunction function, Body&& body) {
  switch (function) {
    case ActivationFunction::kTanh: return body(Tanh{});
    case ActivationFunction::kSigmoid: return body(Sigmoid{});
    case ActivationFunction::kGelu: return body(Gelu{});
    case ActivationFunction::kSilu: return body(Silu{});
  }
}

}  // namespace

void OnednnBackend::run(const ops::ActivationForward& op) {
  dispatch_function(op.function, [&](auto function) {
    dispatch_activation(op.x.dtype(), [&](auto type) {
      using T = decltype(type);
      const T* x = op.x.data<T>();
      T* y = op.y.data<T>();
      parallel_ranges(op.x.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
        forward_kernel<decltype(function)>(x + first, y + first, last - first);
      });
    });
  });
}

void OnednnBackend::run(const ops::ActivationBackward& op) {
  dispatch_function(op.function, [&](auto function) {
    dispatch_activation(op.x.dtype(), [&](auto type) {
      using T = decltype(type);
      const T *dy = op.dy.data<T>(), *x = op.x.data<T>();
      T* dx = op.dx.data<T>();
      parallel_ranges(op.x.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
        backward_kernel<decltype(function)>(dy + first, x + first, dx + first, last - first);
      });
    });
  });
}

}  // namespace convoy
