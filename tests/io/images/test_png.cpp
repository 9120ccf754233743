// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "io/images/png.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;

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
    const Picture picture = noise(37, 19, channels);
    const auto chunks = chunks_of(png_bytes(picture));
    REQUIRE(chunks.size() == 3);
    CHECK(chunks[0].type == "IHDR");
    CHECK(chunks[0].data ==
          std::string("\0\0\0\x25\0\0\0\x13\x08", 9) + (channels == 1 ? '\0' : '\2') + std::string(3, '\0'));
    CHECK(chunks[1].type == "IDAT");
    CHECK(chunks[2].type == "IEND");
    CHECK(chunks[2].data.empty());
    const std::size_t row = 37 * static_cast<std::size_t>(channels);
    std::string rows(19 * (row + 1), 'x');
    uLongf size = rows.size();
    REQUIRE(::uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                         reinterpret_cast<const Bytef*>(chunks[1].data.data()), chunks[1].data.size()) == Z_OK);
    REQUIRE(size == rows.size());
    for (std::size_t y = 0; y < 19; ++y) {
      CHECK(rows[y * (row + 1)] == 0);
      CHECK(std::memcmp(&rows[y * (row + 1) + 1], &picture.pixels[y * row], row) == 0);
    }
  }
}

TEST_CASE("what is no picture") {
  Picture picture = noise(4, 3, 1);
  picture.pixels.pop_back();
  CHECK(test::error_of([&] { (void)png_bytes(picture); }) == "11 bytes for a picture of 4x3 pixels of 1 channels");
  CHECK(!test::error_of([] { (void)png_bytes({0, 3, 1, {}}); }).empty());
  CHECK(!test::error_of([] { (void)png_bytes(noise(2, 2, 2)); }).empty());
  CHECK(!test::error_of([] { (void)png_bytes({std::int64_t{1} << 40, 1, 1, {}}); }).empty());
}
