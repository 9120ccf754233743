// SPDX-License-Identifier: Apache-2.0
//
// Decodes a part of a baseline JPEG, as most are: jpeg_huffman.h decodes the scan and keeps only the part's MCUs;
// libjpeg makes their pixels, as if they were a smaller image. The pixels are those of the whole image by libjpeg, bit
// for bit.
#pragma once

#include <cstdint>
#include <memory>

#include "io/images/libjpeg.h"

namespace convoy {

/// Pixels beside a box that chroma is interpolated from.
inline constexpr int kChromaMargin = 2;

/// Rows and columns of an image, at the scale at which it is decoded.
struct ScaledPart {
  int first_row = 0, rows = 0, first_column = 0, columns = 0;
};

class BaselineJpeg {
 public:
  BaselineJpeg();
  ~BaselineJpeg();

  /// Decodes `part` of the image whose header was read to `whole`, at eighths / 8 of its size, to JCS_RGB or
  /// JCS_GRAYSCALE: [rows, columns, channels], valid until the next call. `part` becomes what these are: the columns
  /// begin where those of an MCU do. The first and last kChromaMargin columns may lack their neighbours' chroma.
  /// Returns null, with `part` and `whole` as they were, if the image is of another kind (progressive, CMYK), if its
  /// part is large, or if its scan is damaged: libjpeg then decodes it, or says what is wrong.
  const std::uint8_t* decode(const jpeg_decompress_struct& whole, int eighths, J_COLOR_SPACE colors, ScaledPart& part);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convoy
