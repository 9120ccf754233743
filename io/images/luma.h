// SPDX-License-Identifier: Apache-2.0
//
// Grey of colours.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convoy {

/// Rec. 601 luma of an RGB pixel in 16-bit fixed point, rounded: Pillow's convert("L").
[[nodiscard]] inline int luma(const std::uint8_t* rgb) {
  return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
}

/// The same of `count` pixels, in place: three bytes become one.
inline void rgb_to_grey(std::uint8_t* pixels, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) pixels[i] = static_cast<std::uint8_t>(luma(pixels + 3 * i));
}

}  // namespace convoy
