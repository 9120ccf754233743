// SPDX-License-Identifier: Apache-2.0
//
// What batch normalisation's forward and backward share: how rows of channels are summed. Private to
// layers/backend/onednn.
#pragma once

#include <cmath>
#include <cstdint>

#include "layers/backend/onednn/bfloat16.h"

namespace convoy {

/// Rows that are summed in float, for an error of some 1e-7; more of numbers that are themselves rounded to 2^-9.
template <class T>
constexpr std::int64_t kBlockRows = 32;
template <>
inline constexpr std::int64_t kBlockRows<BFloat16> = 128;

/// Distance between two threads' or two arrays' parts in a shared buffer: no cache line belongs to two of them.
inline std::int64_t padded(std::int64_t channels) { return (channels + 15) / 16 * 16; }

/// What the backward pass needs of each channel: dx = scale * g + slope * (x - mean) + shift.
struct BackwardCoefficients {
  const float *scale, *slope, *shift, *mean;
};

inline double inverse_std(float variance, float epsilon) {
  return 1.0 / std::sqrt(static_cast<double>(variance) + static_cast<double>(epsilon));
}

}  // namespace convoy
