// SPDX-License-Identifier: Apache-2.0
//
// Decodes a part of a baseline JPEG, as most are: its own entropy decoding (jpeg_huffman.h), of which only the MCUs of
// the part are kept, and libjpeg for all else: it is given the coefficients of a smaller image, which is the part. The
// pixels are libjpeg's, bit for bit.
#pragma once

#include <cstdint>
#include <memory>

#include "io/images/libjpeg.h"

namespace convoy {

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
  /// begin where those of an MCU do. The outermost two pixels may lack their neighbours' chroma. Returns null, and
  /// reads nothing from `whole`'s source, where the image is of another kind (progressive, CMYK) or large, and where
  /// its scan is not as it should be: libjpeg then decodes it, or says what is wrong.
  const std::uint8_t* decode(const jpeg_decompress_struct& whole, int eighths, J_COLOR_SPACE colors, ScaledPart& part);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convoy
