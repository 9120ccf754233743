// SPDX-License-Identifier: Apache-2.0
//
// What decoders of all formats share: the header of an image, the box that is wanted, the pixels that come of it, and
// the largest image that is decoded.
#pragma once

#include <cstdint>

#include "layers/base/error.h"

namespace convoy {

/// An image as it is shown, after the rotation that its Exif block asks for.
struct ImageHeader {
  int width = 0, height = 0;
  int components = 0;   ///< 1 grey, 3 colour, 4 CMYK; transparency is not counted
  int orientation = 1;  ///< Exif's 1 to 8; 1: shown as stored
  bool alpha = false;   ///< has transparency, which decoding drops
};

/// Pixels [left, left + width) x [top, top + height) of an image.
struct PixelBox {
  int left = 0, top = 0, width = 0, height = 0;
  bool operator==(const PixelBox&) const = default;
};

/// What was decoded: at least the box that was asked for, rounded outwards. Memory of the decoder, valid until it is
/// used again.
struct DecodedPixels {
  const std::uint8_t* pixels = nullptr;  ///< [height, width, channels], without gaps
  int width = 0, height = 0, channels = 0;
  double left = 0, top = 0;  ///< where the first pixel's corner lies in the full image
  double scale = 1;          ///< decoded pixels to one of the full image: 1, 1/2, 1/4 or 1/8
};

/// Throws an Error for an image of more than 65,500 pixels a side or 256 million altogether.
inline void check_image_size(std::int64_t width, std::int64_t height) {
  constexpr std::int64_t kMaxSide = 65500, kMaxPixels = 256'000'000;
  if (width <= kMaxSide && height <= kMaxSide && width * height <= kMaxPixels) return;
  fail("{} x {} pixels (at most {} a side and {} million altogether)", width, height, kMaxSide, kMaxPixels / 1000000);
}

/// That a decoder may take for one image, in each thread.
inline constexpr std::int64_t kMaxDecodingBytes = std::int64_t{512} << 20;

}  // namespace convoy
