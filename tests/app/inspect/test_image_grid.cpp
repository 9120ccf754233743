// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "app/inspect/bitmap_font.h"
#include "app/inspect/image_grid.h"

using namespace convoy;

namespace {

std::string glyph(char c) {
  std::string rows;
  for (int y = 0; y < kGlyphHeight; ++y) {
    for (int x = 0; x < kGlyphWidth; ++x) rows += glyph_pixel(c, x, y) ? '#' : '.';
  }
  return rows;
}

}  // namespace

TEST_CASE("every printable character has a glyph of its own") {
  std::set<std::string> glyphs;
  for (char c = ' '; c <= '~'; ++c) glyphs.insert(glyph(c));
  CHECK(glyphs.size() == '~' - ' ' + 1);
  CHECK(glyph('L') == "#....#....#....#....#....#....#####");
  CHECK(glyph('T') == "#####..#....#....#....#....#....#..");
  CHECK(glyph('\n') == glyph('?'));
  CHECK(printable("a\xC3\xBC\xE2\x82\xAC z\n") == "a?? z?");
}

TEST_CASE("samples lie side by side, enlarged and not mixed") {
  // Three samples of 2x1 pixels, RGB: two columns, two rows; 56 pixels at least a side, so 56 times as large.
  const Shape shape{3, 1, 2};
  const std::vector<GridTile> tiles = {
      {{10, 20, 30, 40, 50, 60}, "1"}, {{1, 2, 3, 4, 5, 6}, "2"}, {{7, 8, 9, 0, 0, 0}, ""}};
  const Picture picture = draw_grid(tiles, shape);
  CHECK(picture.channels == 3);
  CHECK(picture.width == 6 + 2 * (112 + 6));
  CHECK(picture.height == 6 + 2 * (56 + 11 + 6));
  const auto at = [&](std::int64_t x, std::int64_t y) {
    const auto* p = &picture.pixels[static_cast<std::size_t>((y * picture.width + x) * 3)];
    return std::vector<int>{p[0], p[1], p[2]};
  };
  using Rgb = std::vector<int>;
  CHECK(at(5, 6) == Rgb{255, 255, 255});
  CHECK(at(6, 6) == Rgb{10, 20, 30});
  CHECK(at(6 + 55, 6 + 55) == Rgb{10, 20, 30});
  CHECK(at(6 + 56, 6) == Rgb{40, 50, 60});
  CHECK(at(6 + 118, 6) == Rgb{1, 2, 3});
  CHECK(at(6, 6 + 73) == Rgb{7, 8, 9});
  CHECK(at(6 + 118, 6 + 73) == Rgb{255, 255, 255});  // no fourth sample
}

TEST_CASE("labels make room, up to a length") {
  const Shape shape{1, 8, 8};
  const auto width = [&](const std::string& label) {
    return draw_grid({{std::vector<std::uint8_t>(64), label}}, shape).width - 12;
  };
  CHECK(width("7") == 56);
  CHECK(width("twelve chars") == 72);
  CHECK(width("a label of more than sixteen") == 96);
}
