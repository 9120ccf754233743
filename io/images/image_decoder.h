// SPDX-License-Identifier: Apache-2.0
//
// Decodes JPEG and PNG, told apart by how the bytes start: a file's name does not matter.
#pragma once

#include <cstddef>
#include <span>

#include "io/images/decoded_image.h"
#include "io/images/jpeg.h"
#include "io/images/png.h"

namespace convoy {

class ImageDecoder {
 public:
  /// Reads the header of the image in `bytes`, which must stay until it is decoded. Throws an Error that says what is
  /// wrong with them (without a name); see JpegDecoder and PngDecoder.
  ImageHeader open(std::span<const std::byte> bytes);
  /// Decodes `box` of the image that was opened last, once, to RGB (channels = 3) or grey (1). A JPEG is decoded at the
  /// smallest scale at which the box has at least `least_width` x `least_height` pixels, a PNG as it is.
  DecodedPixels decode(const PixelBox& box, int least_width, int least_height, int channels);

 private:
  JpegDecoder jpeg_;
  PngDecoder png_;
  bool is_png_ = false;
};

}  // namespace convoy
