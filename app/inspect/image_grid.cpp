// SPDX-License-Identifier: Apache-2.0
#include "app/inspect/image_grid.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "app/inspect/bitmap_font.h"

namespace convoy {

namespace {

constexpr std::int64_t kMinSide = 56;  // pixels; smaller samples are enlarged to this or a little more
constexpr std::int64_t kGap = 6;
constexpr std::int64_t kAdvance = kGlyphWidth + 1;
constexpr std::int64_t kLabelHeight = kGlyphHeight + 4;
constexpr std::size_t kMaxCharacters = 16;
constexpr std::uint8_t kPaper = 255, kInk = 0;

std::string short_label(const GridTile& tile) {
  std::string text = printable(tile.label);
  if (text.size() <= kMaxCharacters) return text;
  text.resize(kMaxCharacters - 2);
  return text.append("..");
}

class Canvas {
 public:
  Canvas(std::int64_t width, std::int64_t height, int channels) : picture_{width, height, channels, {}} {
    picture_.pixels.assign(static_cast<std::size_t>(width * height * channels), kPaper);
  }
  std::uint8_t* pixel(std::int64_t x, std::int64_t y) {
    return &picture_.pixels[static_cast<std::size_t>((y * picture_.width + x) * picture_.channels)];
  }
  void sample(const GridTile& tile, const Shape& shape, std::int64_t factor, std::int64_t left, std::int64_t top) {
    const std::int64_t channels = shape[0], height = shape[1], width = shape[2];
    for (std::int64_t y = 0; y < height * factor; ++y) {
      for (std::int64_t x = 0; x < width * factor; ++x) {
        const std::uint8_t* from = &tile.pixels[static_cast<std::size_t>((y / factor * width + x / factor) * channels)];
        std::copy(from, from + channels, pixel(left + x, top + y));
      }
    }
  }
  void text(const std::string& words, std::int64_t left, std::int64_t top) {
    for (const char c : words) {
      for (int y = 0; y < kGlyphHeight; ++y) {
        for (int x = 0; x < kGlyphWidth; ++x) {
          if (glyph_pixel(c, x, y)) std::fill_n(pixel(left + x, top + y), picture_.channels, kInk);
        }
      }
      left += kAdvance;
    }
  }
  Picture take() { return std::move(picture_); }

 private:
  Picture picture_;
};

}  // namespace

Picture draw_grid(const std::vector<GridTile>& tiles, const Shape& sample) {
  const std::int64_t least = std::min(sample[1], sample[2]);
  const std::int64_t factor = std::max<std::int64_t>(1, (kMinSide + least - 1) / least);
  std::int64_t label_width = 0;
  for (const GridTile& tile : tiles) {
    label_width = std::max(label_width, static_cast<std::int64_t>(short_label(tile).size()) * kAdvance);
  }
  const std::int64_t width = std::max(sample[2] * factor, label_width), height = sample[1] * factor + kLabelHeight;
  const auto count = static_cast<std::int64_t>(tiles.size());
  const auto columns = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const std::int64_t rows = (count + columns - 1) / columns;
  Canvas canvas(kGap + columns * (width + kGap), kGap + rows * (height + kGap), static_cast<int>(sample[0]));
  for (std::int64_t i = 0; i < count; ++i) {
    const GridTile& tile = tiles[static_cast<std::size_t>(i)];
    const std::int64_t left = kGap + i % columns * (width + kGap), top = kGap + i / columns * (height + kGap);
    canvas.sample(tile, sample, factor, left + (width - sample[2] * factor) / 2, top);
    const std::string label = short_label(tile);
    const std::int64_t indent = (width - static_cast<std::int64_t>(label.size()) * kAdvance + 1) / 2;
    canvas.text(label, left + indent, top + sample[1] * factor + 3);
  }
  return canvas.take();
}

}  // namespace convoy
