// SPDX-License-Identifier: Apache-2.0
//
// An activation between two layers, with a batch norm, an addition and a ReLU that may still be pending: the layer that
// reads it passes them to its operation as a prologue, so that a backend can apply them when it reads the values.
#pragma once

#include <optional>

#include "layers/backend/backend.h"

namespace convoy {

/// A batch norm that has its statistics: the operands of ops::BatchNormApply.
struct PendingNorm {
  Tensor x, mean, variance, gamma, beta;
  float epsilon = 0;
  bool relu = false;
  Tensor* mask = nullptr;
  Tensor coefficients{}, rounded{};

  /// Refers to this, to residual and to y.
  [[nodiscard]] ops::BatchNormApply apply(const Tensor& residual, const Tensor& y,
                                          const ops::BatchNormApply* prologue = nullptr,
                                          const ops::MaxPoolForward* epilogue = nullptr) const {
    return {x,    mean, variance, gamma,    beta,     epsilon,      residual,
            relu, y,    mask,     prologue, epilogue, coefficients, rounded};
  }
};

struct Activation {
  Tensor values;  ///< computed, or memory for the output of `pending`, or empty
  std::optional<PendingNorm> pending{};
  Tensor residual{};                      ///< of pending
  std::optional<PendingNorm> shortcut{};  ///< the batch norm whose output is the residual, where that is empty

  [[nodiscard]] const Shape& shape() const { return pending ? pending->x.shape() : values.shape(); }
  /// The pending operation, or nothing; it refers to this activation. With a shortcut that is pending, too, only
  /// materialize() applies it.
  [[nodiscard]] std::optional<ops::BatchNormApply> prologue() const {
    if (!pending) return std::nullopt;
    return pending->apply(residual, values);
  }
  /// Applies pending operations in one pass; returns the values.
  Tensor materialize(Backend& backend) {
    if (!pending) return values;
    if (!values) values = backend.tensor(shape(), pending->x.dtype());
    if (!shortcut) {
      backend.run(pending->apply(residual, values));
    } else {
      const ops::BatchNormApply other = shortcut->apply(ops::none(), ops::none());
      backend.run(pending->apply(ops::none(), values, &other));
    }
    return values;
  }
};

/// Mean and biased variance of a batch norm's input, float32 [C], and what else is computed with them (see
/// ops::BatchNormStatistics); empty when it computes none.
struct Moments {
  Tensor mean, variance;
  Tensor step_mean{}, step_variance{};
  float share = 0;
  Tensor pivot{}, gamma{}, beta{};
  float epsilon = 0;
  Tensor coefficients{}, rounded{};

  /// Computes those of x; refers to x and to this.
  [[nodiscard]] ops::BatchNormStatistics of(const Tensor& x) const {
    return {x, mean, variance, step_mean, step_variance, share, pivot, gamma, beta, epsilon, coefficients, rounded};
  }
};

}  // namespace convoy
