// SPDX-License-Identifier: Apache-2.0
//
// The middle of measured times: a few disturbed ones do not move it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace convoy {

/// The upper median of at least one value.
inline double median(std::vector<double> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

}  // namespace convoy
