// SPDX-License-Identifier: Apache-2.0
//
// Grey of colours, one pixel at a time.
#pragma once

#include <cstdint>

namespace convoy {

/// Rec. 601 luma of an RGB pixel in 16-bit fixed point, rounded: Pillow's convert("L").
[[nodiscard]] inline int luma(const std::uint8_t* rgb) {
  return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
}

}  // namespace convoy
