// SPDX-License-Identifier: Apache-2.0
//
// PNGs of every kind made by the tests themselves (ISO/IEC 15948), with zlib but without libpng: rows without filters.
#pragma once

#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace convoy::test {

struct PngStyle {
  int type = 2;  ///< 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha
  int bits = 8;
  bool interlaced = false;
  std::string palette = {}, transparency = {};  ///< contents of PLTE and tRNS; empty: none

  [[nodiscard]] int channels() const { return type == 2 ? 3 : type == 4 ? 2 : type == 6 ? 4 : 1; }
};

inline std::string big_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes; i-- > 0;) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string covered = type + data;
  const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(covered.data()), covered.size());
  return big_endian(data.size(), 4) + covered + big_endian(crc, 4);
}

/// Sample c of pixel (x, y), below 2^bits.
using PngSamples = std::function<unsigned(int x, int y, int c)>;

inline std::string png_file(int width, int height, const PngStyle& style, const PngSamples& sample) {
  struct Pass {
    int x, y, across, down;
  };
  constexpr std::array<Pass, 7> kAdam7{
      {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}};
  std::string rows;
  const auto add_pass = [&](const Pass& p) {
    if (p.x >= width) return;
    for (int y = p.y; y < height; y += p.down) {
      rows += '\0';
      unsigned bits = 0, word = 0;
      for (int x = p.x; x < width; x += p.across) {
        for (int c = 0; c < style.channels(); ++c) {
          if (style.bits >= 8) {
            rows += big_endian(sample(x, y, c), style.bits / 8);
            continue;
          }
          word = word << style.bits | sample(x, y, c);
          bits += static_cast<unsigned>(style.bits);
          if (bits == 8) rows += static_cast<char>(word), bits = word = 0;
        }
      }
      if (bits > 0) rows += static_cast<char>(word << (8 - bits));
    }
  };
  if (style.interlaced) {
    for (const Pass& pass : kAdam7) add_pass(pass);
  } else {
    add_pass({0, 0, 1, 1});
  }
  uLongf size = ::compressBound(rows.size());
  std::string data(size, '\0');
  ::compress(reinterpret_cast<Bytef*>(data.data()), &size, reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  data.resize(size);
  const std::string header = big_endian(static_cast<unsigned>(width), 4) +
                             big_endian(static_cast<unsigned>(height), 4) + static_cast<char>(style.bits) +
                             static_cast<char>(style.type) + std::string(2, '\0') + (style.interlaced ? '\1' : '\0');
  std::string file = "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header);
  if (!style.palette.empty()) file += png_chunk("PLTE", style.palette);
  if (!style.transparency.empty()) file += png_chunk("tRNS", style.transparency);
  return file + png_chunk("IDAT", data) + png_chunk("IEND", "");
}

}  // namespace convoy::test
