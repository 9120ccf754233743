// SPDX-License-Identifier: Apache-2.0
#include "app/planning/order_statistics.h"

#include <cmath>
#include <numbers>

namespace convoy {

namespace {

constexpr int kManyRanks = 1000;

// x times the density of the maximum of n standard normal draws, n f(x) F(x)^(n - 1).
double integrand(double x, int n) {
  const double above = 0.5 * std::erfc(x / std::numbers::sqrt2);  // 1 - F(x)
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  return x * n * density * std::exp((n - 1) * std::log1p(-above));
}

}  // namespace

double expected_maximum(int n, JitterDistribution distribution) {
  if (n < 2) return 0;
  if (distribution == JitterDistribution::kExponential) {
    if (n > kManyRanks) return std::log(n) + std::numbers::egamma + 0.5 / n - 1;  // to 1e-7
    double sum = 0;
    for (int i = n; i > 1; --i) sum += 1.0 / i;
    return sum;
  }
  // The trapezoidal rule converges exponentially for such integrands (Trefethen and Weideman 2014): a step of half the
  // standard deviation of the maximum of 2^20 draws is enough.
  constexpr double kStart = -9, kStep = 0.125;
  constexpr int kSteps = 168;
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) sum += integrand(kStart + i * kStep, n);
  return sum * kStep;
}

}  // namespace convoy
