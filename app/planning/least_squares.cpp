// SPDX-License-Identifier: Apache-2.0
#include "app/planning/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr double kDifference = 1e-5;  // of derivatives: parameters are of order 1
constexpr int kMaxIterations = 200;
constexpr double kConverged = 1e-8;  // relative change of the sum of squares
constexpr double kMaxDamping = 1e12;

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;  // by rows

double sum_of_squares(const Vector& r) {
  double sum = 0;
  for (const double x : r) sum += x * x;
  return sum;
}

// The lower triangle of the Cholesky factor, or nothing if the matrix is not positive definite.
std::optional<Matrix> cholesky(const Matrix& a) {
  const std::size_t n = a.size();
  Matrix l(n, Vector(n, 0));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (std::size_t k = 0; k < j; ++k) sum -= l[i][k] * l[j][k];
      if (i == j && !(sum > 0)) return std::nullopt;
      l[i][j] = i == j ? std::sqrt(sum) : sum / l[j][j];
    }
  }
  return l;
}

Vector solve(const Matrix& l, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= l[i][k] * b[k];
    b[i] /= l[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= l[k][i] * b[k];
    b[i] /= l[i][i];
  }
  return b;
}

// J^T J and J^T r at a point.
struct Normal {
  Matrix matrix;
  Vector gradient;
};

Normal normal_equations(const Residuals& residuals, const Vector& at) {
  const Vector here = residuals(at);
  Matrix columns;
  for (std::size_t i = 0; i < at.size(); ++i) {
    Vector above = at, below = at;
    above[i] += kDifference;
    below[i] -= kDifference;
    Vector up = residuals(above);
    const Vector down = residuals(below);
    for (std::size_t k = 0; k < up.size(); ++k) up[k] = (up[k] - down[k]) / (2 * kDifference);
    columns.push_back(std::move(up));
  }
  const auto dot = [](const Vector& a, const Vector& b) {
    double sum = 0;
    for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
    return sum;
  };
  Normal normal{Matrix(at.size(), Vector(at.size())), Vector(at.size())};
  for (std::size_t i = 0; i < at.size(); ++i) {
    for (std::size_t j = 0; j < at.size(); ++j) normal.matrix[i][j] = dot(columns[i], columns[j]);
    normal.gradient[i] = dot(columns[i], here);
  }
  return normal;
}

}  // namespace

double huber(double residual, double threshold) {
  const double size = std::abs(residual);
  if (size <= threshold) return residual;
  return std::copysign(std::sqrt(threshold * (2 * size - threshold)), residual);
}

LeastSquares least_squares(const Residuals& residuals, std::vector<double> start) {
  LeastSquares best{std::move(start), {}, 0};
  best.sum = sum_of_squares(residuals(best.parameters));
  double damping = 1e-3;
  Normal normal = normal_equations(residuals, best.parameters);
  for (int iteration = 0; iteration < kMaxIterations && damping < kMaxDamping; ++iteration) {
    Matrix damped = normal.matrix;
    for (std::size_t i = 0; i < damped.size(); ++i) damped[i][i] *= 1 + damping;
    const auto factor = cholesky(damped);
    if (!factor) {
      damping *= 10;
      continue;
    }
    const Vector step = solve(*factor, normal.gradient);
    Vector next = best.parameters;
    for (std::size_t i = 0; i < next.size(); ++i) next[i] -= step[i];
    const double sum = sum_of_squares(residuals(next));
    if (!(sum < best.sum)) {
      damping *= 10;
      continue;
    }
    const bool converged = best.sum - sum <= kConverged * best.sum;
    best.parameters = std::move(next);
    best.sum = sum;
    if (converged) break;
    damping = std::max(damping / 10, 1e-12);
    normal = normal_equations(residuals, best.parameters);
  }
  const auto factor = cholesky(normal_equations(residuals, best.parameters).matrix);
  if (!factor) fail("least squares: the residuals do not determine all {} parameters", best.parameters.size());
  for (std::size_t i = 0; i < best.parameters.size(); ++i) {
    Vector unit(best.parameters.size(), 0);
    unit[i] = 1;
    best.variances.push_back(solve(*factor, std::move(unit))[i]);
  }
  return best;
}

}  // namespace convoy
