// SPDX-License-Identifier: Apache-2.0
//
// What the CPU kernels share about elements: float32 or bfloat16 in memory and float in registers, and an activation
// seen as rows of channels. store() is written as a select and not as a branch, and takes a pointer and not a class
// value, so that loops over bfloat16 are vectorised too.
#pragma once

#include <bit>
#include <cstdint>

#include "layers/backend/onednn/bfloat16.h"
#include "layers/base/error.h"
#include "layers/base/shape.h"

namespace convoy {

inline float load(float value) { return value; }
inline float load(BFloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

inline void store(float value, float* slot) { *slot = value; }
/// The bfloat16 nearest to value, ties to even, in the lower half; a NaN stays one.
inline std::uint32_t rounded_to_bfloat16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (word + 0x7fffU + ((word >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (word >> 16) | 0x40U;
  return (word & 0x7fffffffU) > 0x7f800000U ? quiet : rounded;
}
inline void store(float value, BFloat16* slot) { slot->bits = static_cast<std::uint16_t>(rounded_to_bfloat16(value)); }

/// Calls f(T{}) with T = float or BFloat16 for an activation type.
template <class F>
void dispatch_activation(DType dtype, F&& f) {
  if (dtype == DType::kF32) {
    f(float{});
  } else if (dtype == DType::kBF16) {
    f(BFloat16{});
  } else {
    fail("activations of type {} are not supported on the CPU", dtype_name(dtype));
  }
}

/// max(0, value); a NaN stays one.
inline float positive_part(float value) { return value < 0.0F ? 0.0F : value; }

/// An activation as it lies in memory, channels-last: [N, C, ...] is rows of C channels, one for each sample and pixel.
struct ChannelRows {
  std::int64_t rows = 0, channels = 0;
  explicit ChannelRows(const Shape& shape) : rows(shape[0] * shape.pixels()), channels(shape[1]) {}
  /// Rows that make a part worth a thread.
  [[nodiscard]] std::int64_t grain() const { return 1 + 16384 / (channels + 1); }
};

}  // namespace convoy
