// SPDX-License-Identifier: Apache-2.0
//
// float16 (IEEE 754 binary16) in memory: 1 bit of sign, 5 of exponent, 10 of mantissa, rounded to nearest even. In
// integer arithmetic, so that it is the same on every CPU.
#pragma once

#include <bit>
#include <cstdint>

namespace convoy {

struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = word & 0x7fffffffU;
    std::uint32_t result = 0;
    if (magnitude > 0x7f800000U) {
      result = 0x7e00U;  // a NaN stays one
    } else if (magnitude >= 0x47800000U) {
      result = 0x7c00U;  // 2^16 and above: infinite
    } else if (magnitude >= 0x38800000U) {
      // 2^-14 and above: the exponent counts from 15 and not from 127; a carry out of the mantissa raises it.
      const std::uint32_t moved = magnitude - (112U << 23);
      result = (moved + 0xfffU + ((moved >> 13) & 1U)) >> 13;
    } else {
      // Multiples of 2^-24, to which a sum with 0.5 is rounded.
      result =
          std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
    }
    bits = static_cast<std::uint16_t>((word >> 16 & 0x8000U) | result);
  }
  explicit operator float() const {
    const std::uint32_t sign = (bits & 0x8000U) << 16, magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
    // The same exponent and mantissa as a float32 are 2^112 times too small.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
  }
};

}  // namespace convoy
