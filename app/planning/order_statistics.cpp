// SPDX-License-Identifier: Apache-2.0
#include "app/planning/order_statistics.h"

#include <cmath>
#include <numbers>

namespace convoy {

namespace {

constexpr int kManyRanks = 1000;

// 1 - F(x)^n - F(-x)^n, whose integral over x > 0 is the expected maximum of n standard normal draws.
double integrand(double x, int n) {
  const double above = 0.5 * std::erfc(x / std::numbers::sqrt2);  // 1 - F(x) = F(-x)
  return -std::expm1(n * std::log1p(-above)) - std::pow(above, n);
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
  constexpr double kEnd = 12;  // beyond lie less than 1e-30 of the draws
  constexpr int kParts = 600;  // even: Simpson's rule
  constexpr double kStep = kEnd / kParts;
  double sum = integrand(0, n) + integrand(kEnd, n);
  for (int i = 1; i < kParts; ++i) sum += (i % 2 == 1 ? 4 : 2) * integrand(i * kStep, n);
  return sum * kStep / 3;
}

}  // namespace convoy
