// SPDX-License-Identifier: Apache-2.0
//
// Pearson's test that counts come from equally likely outcomes.
#pragma once

#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace convoy::test {

inline double chi_square(const std::vector<int>& counts) {
  const double mean = std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  double sum = 0;
  for (const int count : counts) sum += (count - mean) * (count - mean) / mean;
  return sum;
}

/// What chi_square() exceeds with a probability of 1 in 1000 (Wilson & Hilferty 1931). Seeds are fixed, so a test that
/// passes once always does.
inline double chi_square_limit(std::size_t outcomes) {
  const double freedom = static_cast<double>(outcomes) - 1, share = 2 / (9 * freedom);
  return freedom * std::pow(1 - share + 3.09 * std::sqrt(share), 3);
}

}  // namespace convoy::test
