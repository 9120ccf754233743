// SPDX-License-Identifier: Apache-2.0
//
// Pictures as PNG (ISO/IEC 15948): 8 bits a channel, grey or RGB. Relies on zlib for the compression and the CRC.
// Invariant: the result is a complete PNG file for any reader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convoy {

struct Picture {
  std::int64_t width = 0, height = 0;
  int channels = 1;                  ///< 1: grey, 3: red, green, blue
  std::vector<std::uint8_t> pixels;  ///< [height, width, channels]
};

/// The bytes of the file. Throws an Error when the sizes do not fit together or are beyond what PNG holds.
[[nodiscard]] std::string png_bytes(const Picture& picture);

}  // namespace convoy
