// SPDX-License-Identifier: Apache-2.0
//
// Nonlinear least squares of a handful of parameters by the Levenberg-Marquardt method (Marquardt 1963), with
// derivatives by differences. Pure functions.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace convoy {

/// Of the parameters. As many residuals in every call, all finite.
using Residuals = std::function<std::vector<double>(std::span<const double> parameters)>;

struct LeastSquares {
  std::vector<double> parameters;
  /// Of each parameter, if the residuals have a standard deviation of 1: the diagonal of (J^T J)^-1.
  std::vector<double> variances;
  double sum = 0;  ///< of the squares of the residuals
};

/// A local minimum from `start` on. The parameters are of order 1, such as logarithms. Throws an Error when the
/// residuals do not determine all parameters.
[[nodiscard]] LeastSquares least_squares(const Residuals& residuals, std::vector<double> start);

/// A residual that counts by its absolute value beyond `threshold` (Huber 1964): its square is Huber's loss, twice.
[[nodiscard]] double huber(double residual, double threshold);

}  // namespace convoy
