// SPDX-License-Identifier: Apache-2.0
//
// Files that are written, against the standard by hand; files that are read, against what was put into them.
#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "io/images/image_decoder.h"
#include "io/images/luma.h"
#include "io/images/png.h"
#include "tests/io/images/jpeg_files.h"
#include "tests/io/images/png_files.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

std::uint32_t number_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

struct Chunk {
  std::string type, data;
};

// The chunks, each with its CRC checked by the standard's own bitwise sum (ISO/IEC 15948, annex D).
std::vector<Chunk> chunks_of(const std::string& png) {
  REQUIRE(png.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  std::vector<Chunk> chunks;
  for (std::size_t at = 8; at < png.size();) {
    const std::size_t size = number_at(png, at);
    const std::string covered = png.substr(at + 4, size + 4);
    std::uint32_t crc = 0xFFFFFFFF;
    for (const char c : covered) {
      crc ^= static_cast<unsigned char>(c);
      for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? crc >> 1 ^ 0xEDB88320U : crc >> 1;
    }
    CHECK(number_at(png, at + 8 + size) == ~crc);
    chunks.push_back({covered.substr(0, 4), covered.substr(4)});
    at += size + 12;
  }
  return chunks;
}

Picture noise(std::int64_t width, std::int64_t height, int channels) {
  Picture picture{width, height, channels, {}};
  for (std::int64_t i = 0; i < width * height * channels; ++i) {
    picture.pixels.push_back(static_cast<std::uint8_t>(i * i * 31 + i));
  }
  return picture;
}

}  // namespace

TEST_CASE("the pixels come back") {
  for (const int channels : {1, 3}) {
    const Picture picture = noise(137, 119, channels);
    const auto chunks = chunks_of(png_bytes(picture));
    REQUIRE(chunks.front().type == "IHDR");
    CHECK(chunks.front().data ==
          std::string("\0\0\0\x89\0\0\0\x77\x08", 9) + (channels == 1 ? '\0' : '\2') + std::string(3, '\0'));
    CHECK(chunks.back().type == "IEND");
    std::string data;
    for (const Chunk& chunk : chunks) data += chunk.type == "IDAT" ? chunk.data : "";
    const std::size_t row = 137 * static_cast<std::size_t>(channels);
    std::string rows(119 * (row + 1), 'x');
    uLongf size = rows.size();
    REQUIRE(::uncompress(reinterpret_cast<Bytef*>(rows.data()), &size, reinterpret_cast<const Bytef*>(data.data()),
                         data.size()) == Z_OK);
    REQUIRE(size == rows.size());
    for (std::size_t y = 0; y < 119; ++y) {
      REQUIRE(rows[y * (row + 1)] == 0);  // no filter
      CHECK(std::memcmp(&rows[y * (row + 1) + 1], &picture.pixels[y * row], row) == 0);
    }
  }
}

TEST_CASE("what is no picture") {
  Picture picture = noise(4, 3, 1);
  picture.pixels.pop_back();
  CHECK(error_of([&] { (void)png_bytes(picture); }) == "11 bytes for a picture of 4x3 pixels of 1 channels");
  CHECK(!error_of([] { (void)png_bytes({0, 3, 1, {}}); }).empty());
  CHECK(!error_of([] { (void)png_bytes(noise(2, 2, 2)); }).empty());
  CHECK(!error_of([] { (void)png_bytes({std::int64_t{1} << 40, 1, 1, {}}); }).empty());
}

namespace {

const std::string kPalette = [] {  // 16 colours
  std::string text;
  for (int i = 0; i < 48; ++i) text += static_cast<char>(i * i * 7 + 11 * i);
  return text;
}();

unsigned sample_of(const PngStyle& style, int x, int y, int c) {
  const auto value = static_cast<unsigned>(x * 2053 + y * 911 + c * 30011 + x * y * 37);
  return style.type == 3 ? value % (1U << std::min(style.bits, 4)) : value % (1U << style.bits);
}

// Channel c (of RGB) of a pixel as it is shown without its transparency.
int shown(const PngStyle& style, int x, int y, int c) {
  const bool colour = style.type == 2 || style.type == 6;
  const auto value = static_cast<int>(sample_of(style, x, y, colour ? c : 0));
  if (style.type == 3) return static_cast<unsigned char>(kPalette[static_cast<std::size_t>(3 * value + c)]);
  if (style.bits == 16) return (value + 128) / 257;
  return value * 255 / ((1 << style.bits) - 1);
}

std::vector<PngStyle> all_styles() {
  std::vector<PngStyle> styles;
  for (const bool interlaced : {false, true}) {
    for (const int bits : {1, 2, 4, 8, 16}) styles.push_back({0, bits, interlaced});
    for (const int bits : {1, 2, 4, 8})
      styles.push_back({3, bits, interlaced, kPalette.substr(0, bits < 4 ? 3U << bits : 48)});
    for (const int type : {2, 4, 6}) {
      for (const int bits : {8, 16}) styles.push_back({type, bits, interlaced});
    }
    styles.push_back({0, 8, interlaced, "", std::string("\0\x05", 2)});
    styles.push_back({2, 8, interlaced, "", std::string("\0\1\0\2\0\3", 6)});
    styles.push_back({3, 4, interlaced, kPalette, std::string("\0\x80\xFF", 3)});
  }
  return styles;
}

std::string file_of(int width, int height, const PngStyle& style) {
  return png_file(width, height, style, [&](int x, int y, int c) { return sample_of(style, x, y, c); });
}

std::string small_png() { return file_of(21, 17, {}); }

}  // namespace

TEST_CASE("png: every kind of file, as RGB and as grey, whole and in part") {
  ImageDecoder decoder;
  for (const PngStyle& style : all_styles()) {
    CAPTURE(style.type);
    CAPTURE(style.bits);
    CAPTURE(style.interlaced);
    for (const int width : {1, 3, 21}) {
      const int height = 17;
      const std::string file = file_of(width, height, style);
      for (const PixelBox& box : {PixelBox{0, 0, width, height}, PixelBox{width / 2, 5, 1, 7}, PixelBox{0, 16, 1, 1}}) {
        for (const int channels : {1, 3}) {
          const ImageHeader header = decoder.open(as_bytes(file));
          REQUIRE(header.width == width);
          REQUIRE(header.height == height);
          CHECK(header.components == (style.type == 0 || style.type == 4 ? 1 : 3));
          CHECK(header.alpha == (style.type >= 4 || !style.transparency.empty()));
          const DecodedPixels part = decoder.decode(box, 1, 1, channels);
          REQUIRE(part.width == width);
          REQUIRE(part.height == box.height);
          CHECK(part.left == 0);
          CHECK(part.top == box.top);
          CHECK(part.scale == 1);
          bool same = true;
          for (int y = 0; y < part.height; ++y) {
            for (int x = 0; x < width; ++x) {
              std::uint8_t rgb[3];
              for (int c = 0; c < 3; ++c) rgb[c] = static_cast<std::uint8_t>(shown(style, x, box.top + y, c));
              const std::uint8_t* found = part.pixels + (y * width + x) * channels;
              if (channels == 1) {
                same = same && found[0] == luma(rgb);
              } else {
                same = same && std::equal(found, found + 3, rgb);
              }
            }
          }
          CHECK(same);
        }
      }
    }
  }
}

TEST_CASE("png: bad files are Errors, and the decoder is as new after them") {
  ImageDecoder decoder;
  const auto whole = [&](const std::string& bytes) {
    return error_of([&] {
      const ImageHeader header = decoder.open(as_bytes(bytes));
      (void)decoder.decode({0, 0, header.width, header.height}, 1, 1, 3);
    });
  };
  const std::string good = small_png();
  for (std::size_t size = 0; size < good.size(); ++size) CHECK(whole(good.substr(0, size)) != "");
  CHECK(contains(whole(good.substr(0, good.size() - 60)), "the PNG ends early"));
  CHECK(whole("") == "the file is empty");
  CHECK(contains(whole("no picture"), "neither JPEG nor PNG: it starts with 0x6e 0x6f"));
  std::string wrong = good;
  wrong[good.find("IDAT") + 40] ^= 1;
  CHECK(whole(wrong) != "");
  wrong = good;
  wrong[good.find("IEND") - 6] ^= 1;  // in the CRC of IDAT
  CHECK(contains(whole(wrong), "CRC error"));
  wrong = good;
  wrong[good.find("IHDR") + 5] ^= 1;  // another width
  CHECK(contains(whole(wrong), "CRC error"));
  CHECK(contains(whole(file_of(9, 9, {3, 4, false})), "PLTE"));  // a palette image without one
  CHECK(whole(good) == "");
}

TEST_CASE("png: sizes are judged by the header") {
  ImageDecoder decoder;
  const auto opened = [&](std::uint64_t width, std::uint64_t height, bool interlaced = false) {
    std::string file = small_png();
    const std::string header =
        big_endian(width, 4) + big_endian(height, 4) + "\x08\x02" + std::string(2, '\0') + (interlaced ? '\1' : '\0');
    file.replace(8, 25, png_chunk("IHDR", header));
    return error_of([&] { (void)decoder.open(as_bytes(file)); });
  };
  CHECK(opened(21, 17) == "");
  CHECK(opened(0, 17) != "");
  CHECK(opened(21, 0) != "");
  CHECK(contains(opened(65501, 10), "at most 65500 a side and 256 million"));
  CHECK(contains(opened(0x7FFFFFFF, 0x7FFFFFFF), "at most 65500 a side"));
  CHECK(contains(opened(20000, 20000), "256 million"));
  for (const bool interlaced : {false, true}) {
    CHECK(contains(opened(15000, 15000, interlaced),
                   "15000 x 15000 pixels need 675000000 bytes to decode (at most 536870912)"));
    CHECK(opened(13377, 13377, interlaced) == "");  // 3 * 13377^2 = 536,832,387
  }
}

TEST_CASE("png: a picture that was written is read") {
  ImageDecoder decoder;
  for (const int channels : {1, 3}) {
    const Picture picture = noise(67, 45, channels);
    const std::string file = png_bytes(picture);
    const ImageHeader header = decoder.open(as_bytes(file));
    CHECK(header.components == channels);
    const DecodedPixels pixels = decoder.decode({0, 0, 67, 45}, 67, 45, channels);
    CHECK(std::memcmp(pixels.pixels, picture.pixels.data(), picture.pixels.size()) == 0);
  }
}

TEST_CASE("png: the content tells formats apart, from one image to the next") {
  ImageDecoder decoder;
  const auto grey = draw(16, 16, 1, [](int x, int, int) { return 10 * x; });
  const std::string jpeg = encode(grey, 16, 16, 1, {.quality = 98}), png = small_png();
  for (int i = 0; i < 3; ++i) {
    CHECK(decoder.open(as_bytes(png)).width == 21);
    CHECK(decoder.decode({0, 0, 21, 17}, 1, 1, 3).height == 17);
    CHECK(decoder.open(as_bytes(jpeg)).width == 16);
    CHECK(decoder.decode({0, 0, 16, 16}, 16, 16, 1).height == 16);
  }
}
