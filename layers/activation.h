// SPDX-License-Identifier: Apache-2.0
//
// An activation between two layers, with a batch norm, an addition and a ReLU that may still be pending: the layer that
// reads it passes them to its operation as a prologue, so that a backend can apply them when it reads the values.
#pragma once

#include <optional>

#include "layers/backend/backend.h"

namespace convoy {

struct Activation {
  /// The operands of ops::BatchNormApply.
  struct Pending {
    Tensor x, mean, variance, gamma, beta;
    float epsilon = 0;
    Tensor residual;
    bool relu = false;
    Tensor* mask = nullptr;
  };

  Tensor values;  ///< computed, or the output of `pending`
  std::optional<Pending> pending{};

  /// The pending operation, or nothing; it refers to this activation.
  [[nodiscard]] std::optional<ops::BatchNormApply> prologue() const {
    if (!pending) return std::nullopt;
    const Pending& p = *pending;
    return ops::BatchNormApply{p.x, p.mean, p.variance, p.gamma, p.beta, p.epsilon, p.residual, p.relu, values, p.mask};
  }
  /// Applies pending operations in one pass; returns the values.
  [[nodiscard]] Tensor materialize(Backend& backend) const {
    if (const auto operation = prologue()) backend.run(*operation);
    return values;
  }
};

/// Mean and biased variance of a batch norm's input, float32 [C], and what they are added to (see
/// ops::BatchNormStatistics); empty when it computes none.
struct Moments {
  Tensor mean, variance;
  Tensor step_mean{}, step_variance{};
  float share = 0;

  /// Computes those of x; refers to x and to this.
  [[nodiscard]] ops::BatchNormStatistics of(const Tensor& x) const {
    return {x, mean, variance, step_mean, step_variance, share};
  }
};

}  // namespace convoy
