// SPDX-License-Identifier: Apache-2.0
//
// Normalisation. Batch norm is in pieces: statistics apart from normalisation, for synchronised batch norm.
#pragma once

#include <string>

#include "layers/backend/elementwise_operations.h"
#include "layers/backend/operation.h"

namespace convoy::ops {

// ---- batch norm (Ioffe & Szegedy 2015) over N, H, W of x [N, C, H, W] or over N of x [N, C]; statistics and
// parameters are [C] float32

/// share * n / (n - 1): the part of an unbiased variance that a biased one of n values makes.
[[nodiscard]] inline float unbiased_share(float share, double n) { return static_cast<float>(share * (n / (n - 1))); }

/// Sets mean and the biased variance of n values per channel. Unless these are empty, also step_mean += share * mean
/// and step_variance += share * n / (n - 1) * variance: this microbatch's part of the step's statistics. Of a batch
/// norm whose operations are fused with convolutions (Backend::fuses_batch_norms) it also sets what these read of it.
struct BatchNormStatistics {
  static constexpr const char* kName = "batch_norm_statistics";
  In x;
  Out mean, variance;
  InOut step_mean = none(), step_variance = none();
  float share = 0;
  In pivot = none();  ///< [C], near the mean: a backend may sum around it. It must not change the result
  In gamma = none(), beta = none();
  float epsilon = 0;
  /// float32 [4, C]: mean, 1 / sqrt(variance + epsilon), scale = gamma times that, shift = beta - mean * scale.
  Out coefficients = none();
  Out rounded = none();  ///< [2, C], scale and shift in the compute type
  template <class V>
  BatchNormStatistics visit(V& v) const {
    return {v.in(x),
            v.out("mean", mean),
            v.out("variance", variance),
            v.in_out("step_mean", step_mean),
            v.in_out("step_variance", step_variance),
            share,
            pivot,
            v.in(gamma),
            v.in(beta),
            epsilon,
            v.out("coefficients", coefficients),
            v.out("rounded", rounded)};
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
  Out y;  ///< empty in a prologue: where a backend does not fuse it, the values are temporary
  /// With relu, for a backward pass: receives what its operations take as `mask`, y itself or fewer bytes. May be null.
  Tensor* mask = nullptr;
  const BatchNormApply* prologue = nullptr;  ///< sets residual
  const MaxPoolForward* epilogue = nullptr;  ///< of y, which may be empty then
  /// Of BatchNormStatistics; what a convolution that has this as a prologue may read in place of the others.
  In coefficients = none(), rounded = none();
  template <class V>
  BatchNormApply visit(V& v) const {
    const BatchNormApply* first = visit_part(v, prologue);
    return {v.in(x),
            v.in(mean),
            v.in(variance),
            v.in(gamma),
            v.in(beta),
            epsilon,
            v.in(residual),
            relu,
            v.out("y", y),
            v.mask(mask),
            first,
            visit_part(v, epilogue),
            v.in(coefficients),
            v.in(rounded)};
  }
  /// Without its parts, of another residual and with another y.
  [[nodiscard]] BatchNormApply with(In other_residual, Out other_y) const {
    return {x,    mean,    variance, gamma,   beta,    epsilon,      other_residual,
            relu, other_y, mask,     nullptr, nullptr, coefficients, rounded};
  }
};

/// With g = dy where the forward's ReLU let it through, and xhat the normalised input: sets dbeta = sum g, dgamma = sum
/// g * xhat, or with accumulate adds to them.
struct BatchNormBackwardReduce {
  static constexpr const char* kName = "batch_norm_backward_reduce";
  In dy, x;
  In mask;  ///< of the forward's ReLU; empty without one, or with `relu`: computed again from x
  In mean, variance, gamma, beta;
  float epsilon = 0;
  bool relu = false;  ///< without a mask: whether there was a ReLU
  InOut dgamma, dbeta;
  bool accumulate = false;
  Out masked = none();       ///< receives g unless it is empty; may be dy
  In coefficients = none();  ///< of BatchNormStatistics: what a convolution that has this as an epilogue may read
  const MaxPoolBackward* prologue = nullptr;  ///< sets dy, which may be empty then
  template <class V>
  BatchNormBackwardReduce visit(V& v) const {
    return {v.in(dy),
            v.in(x),
            v.in(mask),
            v.in(mean),
            v.in(variance),
            v.in(gamma),
            v.in(beta),
            epsilon,
            relu,
            v.gradient("dgamma", dgamma, accumulate),
            v.gradient("dbeta", dbeta, accumulate),
            accumulate,
            v.out("masked", masked),
            v.in(coefficients),
            visit_part(v, prologue)};
  }
  [[nodiscard]] std::string detail() const { return x.shape().str(); }
  /// Without its prologue, of another dy.
  [[nodiscard]] BatchNormBackwardReduce with(In other) const {
    return {other,   x,    mask,   mean,  variance,   gamma,  beta,
            epsilon, relu, dgamma, dbeta, accumulate, masked, coefficients};
  }
};

/// Sets dx = gamma / sqrt(variance + epsilon) * (g - dbeta / count - xhat * dgamma / count). dx may be x. The gradients
/// of the parameters, unless they are empty, are set to dgamma and dbeta, or with accumulate added to.
struct BatchNormBackwardApply {
  static constexpr const char* kName = "batch_norm_backward_apply";
  In dy, x;
  In mask;  ///< as that of BatchNormBackwardReduce
  In mean, variance, gamma, beta, dgamma, dbeta;
  double count = 0;  ///< values per channel over which mean and variance were taken
  float epsilon = 0;
  bool relu = false;
  Out dx;
  InOut gamma_gradient = none(), beta_gradient = none();
  bool accumulate = false;
  const MaxPoolBackward* prologue = nullptr;  ///< sets dy, which may be empty then
  template <class V>
  BatchNormBackwardApply visit(V& v) const {
    return {v.in(dy),
            v.in(x),
            v.in(mask),
            v.in(mean),
            v.in(variance),
            v.in(gamma),
            v.in(beta),
            v.in(dgamma),
            v.in(dbeta),
            count,
            epsilon,
            relu,
            v.out("dx", dx),
            v.gradient("gamma_gradient", gamma_gradient, accumulate),
            v.gradient("beta_gradient", beta_gradient, accumulate),
            accumulate,
            visit_part(v, prologue)};
  }
  [[nodiscard]] std::string detail() const { return x.shape().str(); }
  /// Without its prologue, of another dy.
  [[nodiscard]] BatchNormBackwardApply with(In other) const {
    return {other, x,     mask,    mean, variance, gamma,          beta,          dgamma,
            dbeta, count, epsilon, relu, dx,       gamma_gradient, beta_gradient, accumulate};
  }
};

/// dresidual += g, the gradient of the residual.
struct BatchNormBackwardResidual {
  static constexpr const char* kName = "batch_norm_backward_residual";
  In dy, mask;
  InOut dresidual;
  template <class V>
  BatchNormBackwardResidual visit(V& v) const {
    return {v.in(dy), v.in(mask), v.in_out("dresidual", dresidual)};
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
