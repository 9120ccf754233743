// SPDX-License-Identifier: Apache-2.0
//
// Decodes the part of a JPEG that is asked for, no larger than is asked for: only its rows and columns, and at half, a
// quarter or an eighth of the size when that still covers the target (the discrete cosine transform gives these for
// less than the whole). Relies on libjpeg-turbo's libjpeg interface. Invariant: a decoder that has thrown is as good
// as new for the next open(); pixel buffers are kept from image to image.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "io/images/decoded_image.h"

namespace convoy {

class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header of the JPEG in `bytes`, which must stay until it is decoded. Throws an Error that says what is
  /// wrong with them (no names: the caller adds those), also for images of more than 65,500 pixels a side or 256
  /// million altogether, and of several scans (progressive) that need more than 512 MiB to decode, before memory is
  /// taken.
  ImageHeader open(std::span<const std::byte> bytes);

  /// Decodes `box` of the image that was opened last, once, at the smallest scale at which the box has at least
  /// `least_width` x `least_height` pixels. channels: 3 (RGB) or 1 (grey). Grey becomes RGB, and CMYK and YCCK (with
  /// Adobe's inverted inks) are converted as Pillow's convert("RGB") does; grey of colours is their Y. What libjpeg
  /// warns about (data that are corrupt or end early, as far as they are looked at) is an Error.
  DecodedPixels decode(const PixelBox& box, int least_width, int least_height, int channels);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convoy
