// SPDX-License-Identifier: Apache-2.0
//
// Smoother and sharper uint8 images. Every bit is that of Pillow's ImageEnhance.Sharpness.
#pragma once

#include <cstdint>

namespace convoy {

/// Towards the smoothed image (factor 0), whose pixels are means of 3x3 with 5 times the weight of the centre, or away
/// from it. The border stays as it is. Image [height, width, channels]; `out` must not overlap it.
void adjust_sharpness(const std::uint8_t* image, int height, int width, int channels, float factor, std::uint8_t* out);

}  // namespace convoy
