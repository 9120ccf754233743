// SPDX-License-Identifier: Apache-2.0
//
// Decoding in part against libjpeg's plain decoding of the whole, and against what was drawn.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "io/images/baseline_jpeg.h"
#include "io/images/exif.h"
#include "io/images/jpeg.h"
#include "io/images/libjpeg.h"
#include "layers/base/random.h"
#include "tests/io/images/jpeg_files.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

// Smooth, and different in each channel.
int wave(int x, int y, int c) { return static_cast<int>(128 + 100 * std::sin(0.07 * x + 0.05 * y * (c + 1) + c)); }

// Whether `part` holds the pixels of `whole` (at the same scale) that it says.
bool same_pixels(const DecodedPixels& part, const Decoded& whole) {
  const int left = static_cast<int>(part.left * part.scale), top = static_cast<int>(part.top * part.scale);
  if (left < 0 || top < 0 || left + part.width > whole.width || top + part.height > whole.height) return false;
  for (int y = 0; y < part.height; ++y) {
    for (int i = 0; i < part.width * part.channels; ++i) {
      const int from = ((top + y) * whole.width + left) * part.channels + i;
      // The columns at a cut are interpolated from one neighbour less; the margin around the box is there for them.
      if (left > 0 && i < 2 * part.channels) continue;
      if (left + part.width < whole.width && i >= (part.width - 2) * part.channels) continue;
      if (part.pixels[y * part.width * part.channels + i] != whole.pixels[static_cast<std::size_t>(from)]) return false;
    }
  }
  return true;
}

bool covers(const DecodedPixels& part, const PixelBox& box, int margin, int width, int height) {
  const double right = part.left + part.width / part.scale, bottom = part.top + part.height / part.scale;
  return part.left <= std::max(0, box.left - margin) && part.top <= std::max(0, box.top - margin) &&
         right >= std::min(width, box.left + box.width + margin) &&
         bottom >= std::min(height, box.top + box.height + margin);
}

// The bytes of a JPEG of 64 x 48 waves.
std::string small_jpeg() { return encode(draw(64, 48, 3, wave), 64, 48, 3); }

}  // namespace

TEST_CASE("jpeg: what was drawn comes back") {
  const int width = 67, height = 45;
  JpegDecoder decoder;
  for (const int channels : {1, 3}) {
    const std::string bytes = encode(draw(width, height, channels, wave), width, height, channels, {.quality = 98});
    const ImageHeader header = decoder.open(as_bytes(bytes));
    CHECK(header.width == width);
    CHECK(header.height == height);
    CHECK(header.components == channels);
    CHECK(header.orientation == 1);
    const DecodedPixels pixels = decoder.decode({0, 0, width, height}, width, height, 3);
    REQUIRE(pixels.width == width);
    REQUIRE(pixels.height == height);
    int worst = 0;
    for (int i = 0; i < width * height * 3; ++i) {
      const int expected = wave(i / 3 % width, i / 3 / width, channels == 3 ? i % 3 : 0);
      worst = std::max(worst, std::abs(pixels.pixels[i] - expected));
    }
    CHECK(worst <= 5);  // quantisation at quality 98, and the rounding of YCbCr
  }
}

TEST_CASE("jpeg: any box of any kind of file is that part of the whole") {
  JpegDecoder decoder;
  for (const JpegStyle& style :
       {JpegStyle{.sampling = 1}, JpegStyle{.sampling = 2}, JpegStyle{.sampling = 1, .progressive = true},
        JpegStyle{.sampling = 2, .progressive = true}, JpegStyle{.sampling = 2, .sampling_rows = 1},
        JpegStyle{.sampling = 1, .sampling_rows = 2, .restart_interval = 5}, JpegStyle{.stored_rgb = true}}) {
    for (const int width : {131, 96}) {
      const int height = 217 - width;
      const std::string bytes = encode(draw(width, height, 3, wave), width, height, 3, style);
      for (const int channels : {1, 3}) {
        for (std::uint64_t trial = 0; trial < 30; ++trial) {
          const auto below = [&](std::uint64_t what, int limit) {
            return static_cast<int>(random_uniform(trial, what) * limit);
          };
          PixelBox box{below(0, width), below(1, height), 0, 0};
          box.width = 1 + below(2, width - box.left);
          box.height = 1 + below(3, height - box.top);
          const int smaller = 1 << below(4, 4);  // of the target
          const int least_width = std::max(1, box.width / smaller), least_height = std::max(1, box.height / smaller);
          (void)decoder.open(as_bytes(bytes));
          const DecodedPixels part = decoder.decode(box, least_width, least_height, channels);
          CHECK(covers(part, box, 1, width, height));
          CHECK(box.width * part.scale >= least_width);
          CHECK(box.height * part.scale >= least_height);
          CHECK(same_pixels(part, decode_whole(bytes, channels, static_cast<int>(8 * part.scale))));
        }
      }
    }
  }
}

TEST_CASE("jpeg: narrow boxes at both edges are that part of the whole, however few columns the last MCU has") {
  const int height = 24, rows = 9;
  JpegDecoder decoder;
  for (const JpegStyle& style : {JpegStyle{}, JpegStyle{.sampling = 2}, JpegStyle{.sampling = 2, .sampling_rows = 1}}) {
    for (int width = 33; width <= 48; ++width) {
      const std::string bytes = encode(draw(width, height, 3, wave), width, height, 3, style);
      for (const int smaller : {1, 2, 4, 8}) {
        const Decoded whole = decode_whole(bytes, 3, 8 / smaller);
        for (const int columns : {1, 8, 9}) {
          for (const int left : {0, 16, width - columns}) {
            (void)decoder.open(as_bytes(bytes));
            const PixelBox box{left, 3, columns, rows};
            const DecodedPixels part =
                decoder.decode(box, std::max(1, columns / smaller), std::max(1, rows / smaller), 3);
            if (part.scale * smaller != 1) continue;
            CAPTURE(width);
            CAPTURE(left);
            CAPTURE(columns);
            CAPTURE(smaller);
            CHECK(covers(part, box, 1, width, height));
            CHECK(same_pixels(part, whole));
          }
        }
      }
    }
  }
}

TEST_CASE("jpeg: baseline files are decoded by parts, others and damaged ones are left to libjpeg") {
  const auto decodes = [](const std::string& bytes, int side) {
    JpegDecompressor whole(true);
    struct Source {
      jpeg_decompress_struct& info;
      const std::string& bytes;
    } source{whole.info, bytes};
    whole.guarded<Source>(
        [](Source& s) {
          jpeg_mem_src(&s.info, reinterpret_cast<const unsigned char*>(s.bytes.data()), s.bytes.size());
          jpeg_read_header(&s.info, TRUE);
        },
        source);
    BaselineJpeg baseline;
    ScaledPart part{0, side, 0, side};
    return baseline.decode(whole.info, 8, JCS_RGB, part) != nullptr;
  };
  const auto file = [](const JpegStyle& style, int channels = 3) {
    return encode(draw(40, 40, channels, wave), 40, 40, channels, style);
  };
  for (const JpegStyle& style :
       {JpegStyle{}, JpegStyle{.sampling = 2}, JpegStyle{.sampling = 2, .sampling_rows = 1},
        JpegStyle{.restart_interval = 3}, JpegStyle{.optimized = true}, JpegStyle{.stored_rgb = true}}) {
    CHECK(decodes(file(style), 40));
  }
  CHECK(decodes(file({}, 1), 40));
  CHECK_FALSE(decodes(file({}, 4), 40));
  CHECK_FALSE(decodes(file({.progressive = true}), 40));
  const std::string good = file({});
  CHECK_FALSE(decodes(good.substr(0, good.size() - 2), 40));  // without the marker at its end
  CHECK(decodes(good.substr(0, good.size() - 2), 8));         // which is not looked at for the first rows
  CHECK_FALSE(decodes(good.substr(0, good.size() - 20), 40));
  CHECK_FALSE(decodes(with_size(good, 4000, 4000), 4000));  // 96 MB of coefficients
}

TEST_CASE("jpeg: the smallest of the scales that cover the target is taken, and little outside the box is decoded") {
  const std::string bytes = encode(draw(400, 320, 3, wave), 400, 320, 3, {.sampling = 2});
  JpegDecoder decoder;
  const std::array<std::pair<int, double>, 5> cases{{{160, 1}, {81, 1}, {80, 0.5}, {40, 0.25}, {7, 0.125}}};
  for (const auto& [target, scale] : cases) {
    (void)decoder.open(as_bytes(bytes));
    const DecodedPixels part = decoder.decode({100, 100, 160, 160}, target, target, 3);
    CHECK(part.scale == scale);
    CHECK(part.width <= 160 * scale + 2 * 16 + 4);  // a block of 16 on each side, and the margin
    CHECK(part.height <= 160 * scale + 2 * 2 + 1);
  }
}

TEST_CASE("jpeg: all orientations of Exif, in both byte orders") {
  // Where the 0th row and the 0th column of the stored image are in the shown one (Exif 2.32, table of tag 274).
  struct Case {
    int orientation;
    char row, column;
  };
  constexpr std::array<Case, 8> kCases{{{1, 't', 'l'},
                                        {2, 't', 'r'},
                                        {3, 'b', 'r'},
                                        {4, 'b', 'l'},
                                        {5, 'l', 't'},
                                        {6, 'r', 't'},
                                        {7, 'r', 'b'},
                                        {8, 'l', 'b'}}};
  const int width = 48, height = 32;  // grey, with another level in each quarter
  const auto stored_level = [&](bool first_row, bool first_column) {
    return 40 + (first_row ? 0 : 60) + (first_column ? 0 : 120);
  };
  const auto stored = draw(width, height, 1, [&](int x, int y, int) { return stored_level(y < 16, x < 24); });
  JpegDecoder decoder;
  for (const Case& c : kCases) {
    for (const bool big_endian : {false, true}) {
      const std::string bytes =
          encode(stored, width, height, 1, {.orientation = c.orientation, .big_endian = big_endian});
      const ImageHeader header = decoder.open(as_bytes(bytes));
      CHECK(header.orientation == c.orientation);
      const bool turned = c.orientation >= 5;
      CHECK(header.width == (turned ? height : width));
      CHECK(header.height == (turned ? width : height));
      for (const bool right : {false, true}) {
        for (const bool bottom : {false, true}) {
          const PixelBox corner{right ? header.width - 4 : 0, bottom ? header.height - 4 : 0, 4, 4};
          (void)decoder.open(as_bytes(bytes));
          const DecodedPixels part = decoder.decode(corner, 4, 4, 1);
          const int x = static_cast<int>(corner.left - part.left), y = static_cast<int>(corner.top - part.top);
          REQUIRE(x >= 0);
          REQUIRE(y >= 0);
          const auto is_at = [&](char side) { return side == (right ? 'r' : 'l') || side == (bottom ? 'b' : 't'); };
          CHECK(part.pixels[(y + 1) * part.width + x + 1] ==
                doctest::Approx(stored_level(is_at(c.row), is_at(c.column))).epsilon(0.02));  // quantisation
        }
      }
    }
  }
}

TEST_CASE("jpeg: a box of a turned image lies where it says, at every scale") {
  const int width = 203, height = 150;
  const auto stored = draw(width, height, 1, [](int x, int y, int) { return x + y / 4; });
  JpegDecoder decoder;
  for (const int target : {30, 15, 7}) {
    const std::string bytes = encode(stored, width, height, 1, {.quality = 98, .orientation = 7});
    const ImageHeader header = decoder.open(as_bytes(bytes));
    const DecodedPixels part = decoder.decode({40, 60, 31, 30}, target, target, 1);
    for (const int x : {0, part.width - 1}) {
      for (const int y : {0, part.height - 1}) {
        // Centres of pixels; 7 mirrors both and swaps.
        const double shown_x = part.left + (x + 0.5) / part.scale, shown_y = part.top + (y + 0.5) / part.scale;
        const double u = header.height - shown_y, v = header.width - shown_x;
        CHECK(part.pixels[y * part.width + x] == doctest::Approx(u - 0.5 + (v - 0.5) / 4).epsilon(0.03));
      }
    }
  }
}

TEST_CASE("jpeg: CMYK as Adobe stores it, and grey of colours") {
  const std::array<std::array<int, 4>, 5> inks{
      {{0, 0, 0, 0}, {255, 0, 0, 0}, {0, 255, 255, 0}, {0, 0, 0, 255}, {100, 50, 0, 60}}};
  const auto pixels = draw(16 * 5, 16, 4, [&](int x, int, int c) {
    return inks[static_cast<std::size_t>(x / 16)][static_cast<std::size_t>(c)];
  });
  const std::string bytes = encode(pixels, 80, 16, 4, {.quality = 100});
  JpegDecoder decoder;
  CHECK(decoder.open(as_bytes(bytes)).components == 4);
  DecodedPixels rgb = decoder.decode({0, 0, 80, 16}, 80, 16, 3);
  for (std::size_t i = 0; i < inks.size(); ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      const double expected = (255.0 - inks[i][c]) * (255.0 - inks[i][3]) / 255;
      CHECK(std::abs(rgb.pixels[(8 * 80 + i * 16 + 8) * 3 + c] - expected) <= 2);  // two roundings
    }
  }
  (void)decoder.open(as_bytes(bytes));
  const DecodedPixels grey = decoder.decode({0, 0, 80, 16}, 80, 16, 1);
  CHECK(std::abs(grey.pixels[8 * 80 + 2 * 16 + 8] - 0.299 * 255) <= 2);  // red
}

TEST_CASE("jpeg: bad files are Errors, and the decoder is as new after them") {
  JpegDecoder decoder;
  const std::string good = small_jpeg();
  const auto whole = [&](const std::string& bytes) {
    return error_of([&] {
      const ImageHeader header = decoder.open(as_bytes(bytes));
      (void)decoder.decode({0, 0, header.width, header.height}, 1000, 1000, 3);
    });
  };
  CHECK(whole("") == "the file is empty");
  CHECK(contains(whole("this is no picture"), "Not a JPEG file"));
  for (std::size_t size = 1; size + 2 < good.size(); size += 37) CHECK(whole(good.substr(0, size)) != "");
  CHECK(contains(whole(with_size(good, 65501, 10)), "65500"));
  CHECK(contains(whole(with_size(good, 20000, 20000)), "at most 65500 a side and 256 million"));
  CHECK(contains(whole(with_size(good, 0, 10)), "JPEG"));
  std::string garbled = good;
  for (std::size_t i = good.size() / 2; i < good.size() / 2 + 40; ++i) garbled[i] = static_cast<char>(0xFF);
  CHECK(whole(garbled) != "");
  CHECK(whole(good) == "");
  CHECK(same_pixels((decoder.open(as_bytes(good)), decoder.decode({0, 0, 64, 48}, 64, 48, 3)), decode_whole(good, 3)));
}

TEST_CASE("jpeg: a changed byte gives what libjpeg gives: an Error where it warns, else its pixels") {
  const int width = 40, height = 33;
  const auto noise = draw(width, height, 3, [](int x, int y, int c) {
    return static_cast<int>(256 * random_uniform(7, static_cast<std::uint64_t>((y * 64 + x) * 3 + c)));
  });
  JpegDecoder decoder;
  std::array<int, 2> seen{};  // without a warning, and with one
  for (const int restart_interval : {0, 2}) {
    const std::string good =
        encode(noise, width, height, 3, {.quality = 60, .sampling = 2, .restart_interval = restart_interval});
    const std::size_t scan = good.find("\xFF\xDA") + 14;
    for (std::size_t i = scan; i < good.size(); ++i) {
      for (const int change : {0x01, 0x80, 0xFF}) {
        std::string bytes = good;
        bytes[i] = static_cast<char>(bytes[i] ^ change);
        const Decoded expected = decode_whole(bytes, 3);
        CAPTURE(restart_interval);
        CAPTURE(i);
        CAPTURE(change);
        ++seen[expected.warned ? 1 : 0];
        const std::string problem = error_of([&] {
          (void)decoder.open(as_bytes(bytes));
          const DecodedPixels pixels = decoder.decode({0, 0, width, height}, width, height, 3);
          CHECK(same_pixels(pixels, expected));
        });
        CHECK((problem != "") == expected.warned);
      }
    }
  }
  CHECK(seen[0] > 100);
  CHECK(seen[1] > 100);
}

TEST_CASE("jpeg: a file without tables does not get those of the file before") {
  const std::string good = small_jpeg();
  for (const std::string marker : {"\xFF\xDB", "\xFF\xC4"}) {  // quantisation, Huffman codes
    std::string bytes = good;
    for (std::size_t at = bytes.find(marker); at != std::string::npos; at = bytes.find(marker)) {
      const auto length = [&](std::size_t i) { return static_cast<unsigned char>(bytes[at + i]); };
      bytes.erase(at, 2 + std::size_t{256} * length(2) + length(3));
    }
    const auto outcome = [&](JpegDecoder& decoder) {
      std::vector<std::uint8_t> pixels;
      const std::string problem = error_of([&] {
        (void)decoder.open(as_bytes(bytes));
        const DecodedPixels decoded = decoder.decode({0, 0, 64, 48}, 64, 48, 3);
        pixels.assign(decoded.pixels, decoded.pixels + 64 * 48 * 3);
      });
      return std::pair(problem, pixels);
    };
    JpegDecoder fresh, used;
    const std::string other = encode(draw(64, 48, 3, wave), 64, 48, 3, {.quality = 20, .optimized = true});
    (void)used.open(as_bytes(other));
    (void)used.decode({0, 0, 64, 48}, 64, 48, 3);
    CHECK(outcome(used) == outcome(fresh));
    const bool has_codes =
        marker == "\xFF\xDB";  // without any, libjpeg takes those of the standard, as Motion JPEG does
    CHECK(outcome(used).first == (has_codes ? "Quantization table 0x00 was not defined" : ""));
  }
}

TEST_CASE("jpeg: one of several scans is refused by its header when its coefficients take too much memory") {
  JpegDecoder decoder;
  JpegStyle style;
  style.progressive = true;
  const auto pixels = draw(32, 32, 3, [](int x, int y, int c) { return 5 * x + 3 * y + 40 * c; });
  for (const int sampling : {1, 2}) {  // chroma of all pixels, and of a quarter
    style.sampling = sampling;
    const std::string file = encode(pixels, 32, 32, 3, style);
    const auto opened = [&](int side) {
      return error_of([&] { decoder.open(as_bytes(with_size(file, side, side))); });
    };
    const int most = sampling == 1 ? 9456 : 13376;  // whole MCUs: side^2 * 2 * (1 + 2 / sampling^2) bytes <= 512 MiB
    CHECK(opened(most) == "");
    CHECK(contains(opened(most + 16), "progressive, need"));
    CHECK(contains(opened(15000), "(at most 536870912)"));
  }
  const std::string one_scan = encode(pixels, 32, 32, 3, JpegStyle{});
  CHECK(error_of([&] { decoder.open(as_bytes(with_size(one_scan, 15000, 15000))); }) == "");
}

TEST_CASE("exif: blocks that make no sense leave an image as it is") {
  const std::string block = exif_block(6, false);
  const auto orientation = [](const std::string& text) {
    return exif_orientation({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  };
  CHECK(orientation(block) == 6);
  for (std::size_t size = 0; size + 6 < block.size(); ++size) {
    CHECK(orientation(block.substr(0, size)) <= 6);  // nothing outside is read: the sanitizers look on
    CHECK((size > 26 || orientation(block.substr(0, size)) == 1));
  }
  CHECK(orientation(exif_block(9, false)) == 1);
  CHECK(orientation(exif_block(0, true)) == 1);
  CHECK(orientation(std::string("Exif\0\0II*\0\xFF\xFF\xFF\xFF", 14)) == 1);
  CHECK(orientation("http://ns.adobe.com/xap/1.0/") == 1);
}
