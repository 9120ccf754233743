// SPDX-License-Identifier: Apache-2.0
#include "io/images/png.h"

#include <zlib.h>

#include <cstddef>
#include <limits>
#include <string_view>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();  // of a side, and of a chunk's length

void append_number(std::string& out, std::uint64_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xFFU);
}

// Length, type, data, and the CRC of type and data.
void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_number(out, data.size());
  const std::size_t begin = out.size();
  out += type;
  out += data;
  const auto* bytes = reinterpret_cast<const Bytef*>(out.data() + begin);
  append_number(out, ::crc32_z(0, bytes, out.size() - begin));
}

// Each row behind the number of its filter, 0 (none).
std::string filtered_rows(const Picture& picture) {
  const auto row_bytes = static_cast<std::size_t>(picture.width * picture.channels);
  std::string rows;
  rows.reserve((row_bytes + 1) * static_cast<std::size_t>(picture.height));
  const auto* pixels = reinterpret_cast<const char*>(picture.pixels.data());
  for (std::int64_t y = 0; y < picture.height; ++y) {
    rows += '\0';
    rows.append(pixels + static_cast<std::size_t>(y) * row_bytes, row_bytes);
  }
  return rows;
}

std::string compressed(const std::string& data) {
  uLongf size = ::compressBound(data.size());
  std::string result(size, '\0');
  const int code = ::compress2(reinterpret_cast<Bytef*>(result.data()), &size,
                               reinterpret_cast<const Bytef*>(data.data()), data.size(), Z_DEFAULT_COMPRESSION);
  if (code != Z_OK) fail("zlib cannot compress a picture of {} bytes: {}", data.size(), ::zError(code));
  result.resize(size);
  return result;
}

}  // namespace

std::string png_bytes(const Picture& picture) {
  const std::int64_t w = picture.width, h = picture.height;
  if (w < 1 || h < 1 || w > kLargest || h > kLargest) fail("a picture of {}x{} pixels is no PNG", w, h);
  if (picture.channels != 1 && picture.channels != 3) fail("a picture of {} channels (1 or 3)", picture.channels);
  if (picture.pixels.size() / static_cast<std::size_t>(w) / static_cast<std::size_t>(picture.channels) !=
          static_cast<std::size_t>(h) ||
      picture.pixels.size() % static_cast<std::size_t>(h) != 0) {
    fail("{} bytes for a picture of {}x{} pixels of {} channels", picture.pixels.size(), w, h, picture.channels);
  }
  const std::string data = compressed(filtered_rows(picture));
  if (static_cast<std::int64_t>(data.size()) > kLargest) fail("a picture of {}x{} pixels is too large for PNG", w, h);
  std::string header;
  append_number(header, static_cast<std::uint64_t>(w));
  append_number(header, static_cast<std::uint64_t>(h));
  header += '\x08';                                   // bits a channel
  header += picture.channels == 1 ? '\x00' : '\x02';  // grey, or RGB
  header.append(3, '\0');                             // deflate, the standard filters, not interlaced
  std::string out(kSignature);
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", data);
  append_chunk(out, "IEND", "");
  return out;
}

}  // namespace convoy
