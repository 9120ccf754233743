// SPDX-License-Identifier: Apache-2.0
//
// Normalisation. Batch norm is in pieces: statistics apart from normalisation, for synchronised batch norm.
#pragma once

#include "layers/backend/operation.h"

namespace convoy::ops {

// ---- batch norm (Ioffe & Szegedy 2015) over N, H, W of x [N, C, H, W] or over N of x [N, C]; statistics and
// parameters are [C] float32

/// share * n / (n - 1): the part of an unbiased variance that a biased one of n values makes.
[[nodiscard]] inline float unbiased_share(float share, double n) { return static_cast<float>(share * (n / (n - 1))); }

/// Sets mean and the biased variance of n values per channel. Unless these are empty, also step_mean += share * mean
/// and step_variance += share * n / (n - 1) * variance: this microbatch's part of the step's statistics.
struct BatchNormStatistics {
  static constexpr const char* kName = "batch_norm_statistics";
  In x;
  Out mean, variance;
  InOut step_mean = none(), step_variance = none();
  float share = 0;
  template <class V>
  BatchNormStatistics visit(V& v) const {
    return {v.in(x),
            v.out("mean", mean),
            v.out("variance", variance),
            v.in_out("step_mean", step_mean),
            v.in_out("step_variance", step_variance),
            share};
  }
  /// The factor of the variance in step_variance.
  [[nodiscard]] float variance_share() const {
    return unbiased_share(share, static_cast<double>(x.size()) / static_cast<double>(x.shape()[1]));
  }
};

/// Sets y = gamma * (x - mean) / sqrt(variance + epsilon) + beta (+ residual), then max(0, y) with relu.
struct BatchNormApply {
  static constexpr const char* kName = "batch_norm_apply";
  In x, mean, variance, gamma, beta;
  float epsilon = 0;
  In residual;
  bool relu = false;
  Out y;
  /// With relu, for a backward pass: receives what its operations take as `mask`, y itself or fewer bytes. May be null.
  Tensor* mask = nullptr;
  template <class V>
  BatchNormApply visit(V& v) const {
    return {v.in(x), v.in(mean),     v.in(variance), v.in(gamma),   v.in(beta),
            epsilon, v.in(residual), relu,           v.out("y", y), v.mask(mask)};
  }
};

/// With g = dy where the mask lets it through, and xhat the normalised input: sets dbeta = sum g, dgamma = sum g *
/// xhat. The gradients of the parameters, unless they are empty, are set to these, or with accumulate added to.
struct BatchNormBackwardReduce {
  static constexpr const char* kName = "batch_norm_backward_reduce";
  In dy, x;
  In mask;  ///< of the forward's ReLU; empty without one
  In mean, variance;
  float epsilon = 0;
  Out dgamma, dbeta;
  InOut gamma_gradient = none(), beta_gradient = none();
  bool accumulate = false;
  template <class V>
  BatchNormBackwardReduce visit(V& v) const {
    return {v.in(dy),
            v.in(x),
            v.in(mask),
            v.in(mean),
            v.in(variance),
            epsilon,
            v.out("dgamma", dgamma),
            v.out("dbeta", dbeta),
            v.gradient("gamma_gradient", gamma_gradient, accumulate),
            v.gradient("beta_gradient", beta_gradient, accumulate),
            accumulate};
  }
};

/// Sets dx = gamma / sqrt(variance + epsilon) * (g - dbeta / count - xhat * dgamma / count). dx may be x.
struct BatchNormBackwardApply {
  static constexpr const char* kName = "batch_norm_backward_apply";
  In dy, x, mask, mean, variance, gamma, dgamma, dbeta;
  double count = 0;  ///< values per channel over which mean and variance were taken
  float epsilon = 0;
  Out dx;
  template <class V>
  BatchNormBackwardApply visit(V& v) const {
    return {v.in(dy),     v.in(x),     v.in(mask), v.in(mean), v.in(variance), v.in(gamma),
            v.in(dgamma), v.in(dbeta), count,      epsilon,    v.out("dx", dx)};
  }
};

/// dresidual += g, the gradient of the residual.
struct BatchNormBackwardResidual {
  static constexpr const char* kName = "batch_norm_backward_addend";
  In dy, mask;
  InOut dresidual;
  template <class V>
  BatchNormBackwardResidual visit(V& v) const {
    return {v.in(dy), v.in(mask), v.in_out("daddend", dresidual)};
  }
};

// ---- layer norm (Ba et al. 2016) over the channels of each sample and pixel of x [N, C, ...], a row of x's memory

/// Sets mean and inverse_std = 1 / sqrt(biased variance + epsilon), float32 of one value per row, and
/// y = gamma * (x - mean) * inverse_std + beta; gamma and beta are [C] float32.
struct LayerNormForward {
  static constexpr const char* kName = "layer_norm_forward";
  In x, gamma, beta;
  float epsilon = 0;
  Out y, mean, inverse_std;
  template <class V>
  LayerNormForward visit(V& v) const {
    return {v.in(x),
            v.in(gamma),
            v.in(beta),
            epsilon,
            v.out("y", y),
            v.out("mean", mean),
            v.out("inverse_std", inverse_std)};
  }
};

/// With g = gamma * dy, xhat the normalised input and means over the row: sets
/// dx = inverse_std * (g - mean(g) - xhat * mean(g * xhat)).
struct LayerNormBackwardInput {
  static constexpr const char* kName = "layer_norm_backward_input";
  In dy, x, gamma, mean, inverse_std;
  Out dx;
  template <class V>
  LayerNormBackwardInput visit(V& v) const {
    return {v.in(dy), v.in(x), v.in(gamma), v.in(mean), v.in(inverse_std), v.out("dx", dx)};
  }
};

/// Sets, or with accumulate adds, dgamma = sum over rows of dy * xhat, dbeta = sum of dy.
struct LayerNormBackwardWeight {
  static constexpr const char* kName = "layer_norm_backward_weight";
  In dy, x, mean, inverse_std;
  InOut dgamma, dbeta;
  bool accumulate = false;
  template <class V>
  LayerNormBackwardWeight visit(V& v) const {
    return {v.in(dy),
            v.in(x),
            v.in(mean),
            v.in(inverse_std),
            v.gradient("dgamma", dgamma, accumulate),
            v.gradient("dbeta", dbeta, accumulate),
            accumulate};
  }
};

}  // namespace convoy::ops

// The operations above (operations.h).
#define CONVOY_NORMALIZATION_OPERATIONS(X) \
  X(BatchNormStatistics)                   \
  X(BatchNormApply)                        \
  X(BatchNormBackwardReduce)               \
  X(BatchNormBackwardApply)                \
  X(BatchNormBackwardResidual)             \
  X(LayerNormForward)                      \
  X(LayerNormBackwardInput)                \
  X(LayerNormBackwardWeight)
