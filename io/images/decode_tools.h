// SPDX-License-Identifier: Apache-2.0
//
// Decoding and resizing together: a box of an image, at some size. Relies on image_decoder.h and resize.h. Invariant:
// what evaluation sees and what a data set is packed into are the same bytes, since both come from decode_central().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/images/image_decoder.h"
#include "io/images/resize.h"

namespace convoy {

/// What torchvision's Resize(resize) and CenterCrop(size) show of a width x height image, in its pixels.
[[nodiscard]] ResizeBox central_box(int width, int height, int resize, int size);

/// What becomes of a box.
struct DecodedSize {
  int width = 0, height = 0;
  int channels = 3;   ///< 3: RGB; 1: grey
  bool flip = false;  ///< mirrored left to right
};

/// Memory that one thread keeps from image to image.
struct DecodeTools {
  std::vector<std::byte> bytes;
  ImageDecoder decoder;
  Resizer resizer;

  /// Of the image that `decoder` has open: writes `box`, for which the pixels of `part` are looked at, as
  /// [height, width, channels] to `out`. The decoding may be smaller than the image where it still has `finer` times
  /// the pixels of a side. Throws an Error that says what is wrong with the image.
  void decode_box(const PixelBox& part, const ResizeBox& box, int finer, const DecodedSize& size, std::uint8_t* out);
  /// The same for what torchvision's Resize(resize) and CenterCrop(size.width) show.
  void decode_central(const ImageHeader& header, int resize, const DecodedSize& size, std::uint8_t* out);
  /// The same for the whole image.
  void decode_all(const ImageHeader& header, const DecodedSize& size, std::uint8_t* out);
};

}  // namespace convoy
