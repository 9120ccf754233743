// SPDX-License-Identifier: Apache-2.0
//
// PNG (ISO/IEC 15948) by libpng: the part of an image that is asked for, row by row, and pictures of 8 bits a channel
// as files. Invariant: a decoder that has thrown is as good as new for the next open(); memory is kept from image to
// image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/images/decoded_image.h"

namespace convoy {

struct Picture {
  std::int64_t width = 0, height = 0;
  int channels = 1;                  ///< 1: grey, 3: red, green, blue
  std::vector<std::uint8_t> pixels;  ///< [height, width, channels]
};

/// The bytes of the file. Throws an Error when the sizes do not fit together or are beyond what PNG holds.
[[nodiscard]] std::string png_bytes(const Picture& picture);

/// Whether the bytes start with PNG's signature.
[[nodiscard]] bool is_png(std::span<const std::byte> bytes);

class PngDecoder {
 public:
  PngDecoder();
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  /// Reads the header of the PNG in `bytes`, which must stay until it is decoded. Throws an Error that says what is
  /// wrong with them (without a name), also for images that are too large (check_image_size) or whose pixels need more
  /// than kMaxDecodingBytes as RGB, before memory is taken.
  ImageHeader open(std::span<const std::byte> bytes);

  /// Decodes the rows of `box` of the image that was opened last, once, in their full width. channels: 3 (RGB) or 1
  /// (grey). Palettes become colours, fewer than 8 bits are expanded to the full range, 16 bits become
  /// round(value / 257) (libpng's png_set_scale_16), grey becomes RGB and colours their luma, transparency is dropped;
  /// gamma and colour profiles are not applied. Rows below the box are not decoded, so damage there goes unnoticed; of
  /// an image that is decoded to its last row all checksums are verified.
  DecodedPixels decode(const PixelBox& box, int channels);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convoy
