// SPDX-License-Identifier: Apache-2.0
//
// JPEGs made by the tests themselves, with libjpeg, and decoded whole, as libjpeg does it plainly: the reference for
// decoding in part. Relies on libjpeg ending the program when it is used wrongly here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <jpeglib.h>

#include <jerror.h>

namespace convoy::test {

struct JpegStyle {
  int quality = 90;
  int sampling = 1;          ///< of columns; 1: 4:4:4; 2: 4:2:0
  int sampling_rows = 0;     ///< 0: as of columns
  int restart_interval = 0;  ///< in MCUs
  bool optimized = false;    ///< codes made for this image
  bool stored_rgb = false;   ///< not as YCbCr
  bool progressive = false;
  int orientation = 0;  ///< Exif's; 0: no Exif block
  bool big_endian = false;
};

/// [height, width, channels] of pixel(x, y, c).
using PixelFunction = std::function<int(int x, int y, int c)>;
inline std::vector<std::uint8_t> draw(int width, int height, int channels, const PixelFunction& pixel) {
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) pixels.push_back(static_cast<std::uint8_t>(pixel(x, y, c)));
    }
  }
  return pixels;
}

/// An Exif block whose only tag is the orientation.
inline std::string exif_block(int orientation, bool big_endian) {
  const auto number = [&](int value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) {
      const int shift = 8 * (big_endian ? bytes - 1 - i : i);
      text += static_cast<char>(value >> shift & 0xFF);
    }
    return text;
  };
  return std::string("Exif\0\0", 6) + (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(1, 2) +
         number(0x0112, 2) + number(3, 2) + number(1, 4) + number(orientation, 2) + number(0, 2) + number(0, 4);
}

/// 1 (grey), 3 (RGB, stored as YCbCr) or 4 (CMYK, stored inverted, as Adobe's programs do) channels.
inline std::string encode(const std::vector<std::uint8_t>& pixels, int width, int height, int channels,
                          const JpegStyle& style = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (style.stored_rgb) jpeg_set_colorspace(&info, JCS_RGB);
  jpeg_set_quality(&info, style.quality, TRUE);
  if (channels == 3) {
    info.comp_info[0].h_samp_factor = style.sampling;
    info.comp_info[0].v_samp_factor = style.sampling_rows == 0 ? style.sampling : style.sampling_rows;
  }
  info.restart_interval = static_cast<unsigned>(style.restart_interval);
  info.optimize_coding = style.optimized ? TRUE : FALSE;
  if (style.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  if (style.orientation > 0) {
    const std::string block = exif_block(style.orientation, style.big_endian);
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(block.data()),
                      static_cast<unsigned>(block.size()));
  }
  while (info.next_scanline < info.image_height) {
    std::vector<std::uint8_t> row(pixels.begin() + std::ptrdiff_t{info.next_scanline} * width * channels,
                                  pixels.begin() + (std::ptrdiff_t{info.next_scanline} + 1) * width * channels);
    if (channels == 4) {
      for (auto& value : row) value = static_cast<std::uint8_t>(255 - value);
    }
    JSAMPROW line = row.data();
    jpeg_write_scanlines(&info, &line, 1);
  }
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

struct Decoded {
  int width = 0, height = 0;
  std::vector<std::uint8_t> pixels;
  bool warned = false;  ///< that pixels are made up
};

/// All of it, as stored, in RGB or grey, at eighths / 8 of its size.
inline Decoded decode_whole(const std::string& bytes, int channels, int eighths = 8) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  errors.emit_message = [](j_common_ptr common, int level) {
    if (level < 0 && common->err->msg_code != JWRN_EXTRANEOUS_DATA) ++common->err->num_warnings;
  };
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  info.scale_num = static_cast<unsigned>(eighths);
  info.scale_denom = 8;
  jpeg_start_decompress(&info);
  Decoded out{static_cast<int>(info.output_width), static_cast<int>(info.output_height), {}, false};
  out.pixels.resize(std::size_t{info.output_width} * info.output_height * static_cast<std::size_t>(channels));
  while (info.output_scanline < info.output_height) {
    JSAMPROW line =
        out.pixels.data() + std::size_t{info.output_scanline} * info.output_width * static_cast<std::size_t>(channels);
    jpeg_read_scanlines(&info, &line, 1);
  }
  out.warned = errors.num_warnings > 0;
  jpeg_destroy_decompress(&info);
  return out;
}

/// The bytes with the size in its frame header changed.
inline std::string with_size(std::string bytes, int width, int height) {
  const std::size_t at = std::min(bytes.find("\xFF\xC0"), bytes.find("\xFF\xC2"));  // of one scan, or progressive
  for (const auto& [offset, value] : {std::pair{5, height}, std::pair{7, width}}) {
    bytes[at + static_cast<std::size_t>(offset)] = static_cast<char>(value >> 8);
    bytes[at + static_cast<std::size_t>(offset) + 1] = static_cast<char>(value & 0xFF);
  }
  return bytes;
}

inline std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace convoy::test
