// SPDX-License-Identifier: Apache-2.0
//
// A synchronous step takes as long as the slowest of N ranks: the expected maximum of N independent times. Pure.
#pragma once

#include "layers/base/options.h"

namespace convoy {

/// Of a rank's step times around their mean.
enum class JitterDistribution { kNormal, kExponential };
CONVOY_OPTION_ENUM(JitterDistribution, "normal", "exponential");

/// The expected maximum of n draws, in standard deviations above the mean: 0 for one. Normal: numerical integration
/// over its density (David and Nagaraja 2003), to 1e-6. Exponential: 1/2 + ... + 1/n, which tends to the mean of
/// Gumbel's law, ln n + 0.577 - 1.
[[nodiscard]] double expected_maximum(int n, JitterDistribution distribution);

}  // namespace convoy
