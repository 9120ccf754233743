// SPDX-License-Identifier: Apache-2.0
//
// Pillow 9.4: ImageEnhance.py, ImageOps.py, Blend.c, Convert.c; torchvision 0.14: functional_pil.py. Loops are written
// so that compilers vectorise them.
#include "io/images/color_operations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "io/images/luma.h"
#include "layers/base/cpu_features.h"

namespace convoy {

namespace {

// Pillow's Image.blend(degenerate, image, factor): cut off to whole numbers, and to [0, 255].
std::uint8_t blend(int degenerate, int value, float factor) {
  const float mixed = static_cast<float>(degenerate) + factor * static_cast<float>(value - degenerate);
  return static_cast<std::uint8_t>(std::clamp(mixed, 0.0F, 255.0F));
}

using Table = std::array<std::uint8_t, 256>;
using Histogram = std::array<std::int64_t, 256>;

// Brightness and contrast: every value goes the same way.
void blend_all(std::uint8_t* values, std::int64_t count, int degenerate, float factor) {
  Table table;
  for (int value = 0; value < 256; ++value) table[static_cast<std::size_t>(value)] = blend(degenerate, value, factor);
  for (std::int64_t i = 0; i < count; ++i) values[i] = table[values[i]];
}

// Each channel goes the way that table_of(its histogram) says.
template <class F>
void remap_channels(std::uint8_t* image, std::int64_t pixels, int channels, const F& table_of) {
  std::array<Histogram, 3> counts{};
  std::array<Table, 3> tables;
  if (channels == 3) {
    for (const std::uint8_t* pixel = image; pixel != image + 3 * pixels; pixel += 3) {
      ++counts[0][pixel[0]];
      ++counts[1][pixel[1]];
      ++counts[2][pixel[2]];
    }
    for (std::size_t c = 0; c < 3; ++c) tables[c] = table_of(counts[c]);
    for (std::uint8_t* pixel = image; pixel != image + 3 * pixels; pixel += 3) {
      pixel[0] = tables[0][pixel[0]];
      pixel[1] = tables[1][pixel[1]];
      pixel[2] = tables[2][pixel[2]];
    }
  } else {
    for (std::int64_t i = 0; i < pixels; ++i) ++counts[0][image[i]];
    tables[0] = table_of(counts[0]);
    for (std::int64_t i = 0; i < pixels; ++i) image[i] = tables[0][image[i]];
  }
}

Table unchanged() {
  Table table;
  std::iota(table.begin(), table.end(), std::uint8_t{0});
  return table;
}

// The least and the largest value that are there.
struct Extremes {
  int least, largest;
};

Extremes extremes(const Histogram& counts) {
  const auto there = [](std::int64_t count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), there);
  const auto last = std::find_if(counts.rbegin(), counts.rend(), there);
  return {static_cast<int>(first - counts.begin()), static_cast<int>(counts.rend() - last) - 1};
}

Table stretched(const Histogram& counts) {
  const auto [least, largest] = extremes(counts);
  Table table = unchanged();
  if (largest <= least) return table;
  const double scale = 255.0 / (largest - least), offset = -least * scale;
  for (int value = 0; value < 256; ++value) {
    table[static_cast<std::size_t>(value)] =
        static_cast<std::uint8_t>(std::clamp(static_cast<int>(value * scale + offset), 0, 255));
  }
  return table;
}

Table equalized(const Histogram& counts) {
  const auto [least, largest] = extremes(counts);
  Table table = unchanged();
  const std::int64_t others =
      std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) - counts[static_cast<std::size_t>(largest)];
  const std::int64_t step = others / 255;
  if (largest <= least || step == 0) return table;
  std::int64_t below = step / 2;
  for (std::size_t value = 0; value < 256; ++value) {
    table[value] = static_cast<std::uint8_t>(std::min<std::int64_t>(255, below / step));
    below += counts[value];
  }
  return table;
}

CONVOY_VECTORIZED void keep_bits(std::uint8_t* values, std::int64_t count, std::uint8_t mask) {
  for (std::int64_t i = 0; i < count; ++i) values[i] &= mask;
}

CONVOY_VECTORIZED void invert_from(std::uint8_t* values, std::int64_t count, std::uint8_t threshold) {
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = values[i] < threshold ? values[i] : static_cast<std::uint8_t>(255 - values[i]);
  }
}

int mean_luma(const std::uint8_t* image, std::int64_t pixels, int channels) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < pixels; ++i) sum += channels == 1 ? image[i] : luma(image + i * channels);
  return static_cast<int>((2 * sum + pixels) / (2 * pixels));  // rounded
}

// blend() in a form that compilers vectorise; the three channels are written out for the same reason.
CONVOY_VECTORIZED void blend_with_grey(std::uint8_t* image, std::int64_t pixels, float factor) {
  const auto mix = [factor](int grey, int value) {
    float mixed = static_cast<float>(grey) + factor * static_cast<float>(value - grey);
    mixed = mixed < 0.0F ? 0.0F : mixed;
    mixed = mixed > 255.0F ? 255.0F : mixed;
    return static_cast<std::uint8_t>(static_cast<int>(mixed));
  };
  for (std::int64_t i = 0; i < pixels; ++i) {
    std::uint8_t* pixel = image + 3 * i;
    const int grey = luma(pixel);
    const std::uint8_t r = mix(grey, pixel[0]), g = mix(grey, pixel[1]), b = mix(grey, pixel[2]);
    pixel[0] = r;
    pixel[1] = g;
    pixel[2] = b;
  }
}

// Hues and saturations of HSV are cut off to whole numbers from 0 to 255; the roundings to float and double are those
// of Pillow's expressions. The two smaller values of a pixel have distances of 1 and `ratio` from the largest, as
// shares of the chroma, so the hue is a whole number plus or minus `ratio`, in sixths of a circle. Grey pixels have any
// hue here: without saturation it does not matter.
CONVOY_VECTORIZED void turn_hue_of(const int* reds, const int* greens, const int* blues, int count, int turn,
                                   int* out) {
  for (int i = 0; i < count; ++i) {
    const int r = reds[i], g = greens[i], b = blues[i];
    const int high = std::max(r, std::max(g, b)), low = std::min(r, std::min(g, b));
    const int middle = r + g + b - high - low, chroma = high - low;
    const float ratio = static_cast<float>(high - middle) / static_cast<float>(std::max(chroma, 1));
    const float saturation = static_cast<float>(chroma) / static_cast<float>(std::max(high, 1));
    // Which value is the largest, and on which side of it the hue lies: without branches, which vectors have not.
    const int rg = r >= g, gb = g >= b, rb = r >= b;
    const int red_most = rg & rb, green_most = ~rg & gb & 1, blue_most = 1 - red_most - green_most;
    const int below = (red_most & gb) | (green_most & (1 - rb)) | (blue_most & rg);
    const int whole = red_most * (2 * gb - 1) + green_most * (3 - 2 * rb) + blue_most * (3 + 2 * rg);
    const float sixths = static_cast<float>(whole) + static_cast<float>(1 - 2 * below) * ratio;
    const double circle = static_cast<double>(sixths) / 6.0 + 1.0;
    const auto hue = static_cast<float>(circle - static_cast<double>(static_cast<int>(circle)));
    const int h = (static_cast<int>(static_cast<double>(hue) * 255.0) + turn) & 255;
    const int s = static_cast<int>(static_cast<double>(saturation) * 255.0);

    const double turned = static_cast<double>(h) * 6.0 / 255.0;
    const int sextant = static_cast<int>(turned);  // 0 to 6
    const auto rest = static_cast<float>(turned - static_cast<double>(sextant));
    const auto share = static_cast<float>(static_cast<double>(s) / 255.0);
    const double v = high, half = 0.5;  // rounds numbers of at least 0 as round() does
    const auto least = static_cast<int>(v * (1.0 - static_cast<double>(share)) + half);
    const auto falling = static_cast<int>(v * (1.0 - static_cast<double>(share * rest)) + half);
    const auto rising =
        static_cast<int>(v * (1.0 - static_cast<double>(share) * (1.0 - static_cast<double>(rest))) + half);
    // All bits of the sextants in which the value is meant; sextant 6 is 0.
    const int in0 = -((sextant == 0) | (sextant == 6)), in1 = -(sextant == 1), in2 = -(sextant == 2);
    const int in3 = -(sextant == 3), in4 = -(sextant == 4), in5 = -(sextant == 5);
    const int red = ((in5 | in0) & high) | (in1 & falling) | ((in2 | in3) & least) | (in4 & rising);
    const int green = ((in1 | in2) & high) | (in3 & falling) | ((in4 | in5) & least) | (in0 & rising);
    const int blue = ((in3 | in4) & high) | (in5 & falling) | ((in0 | in1) & least) | (in2 & rising);
    out[i] = red | green << 8 | blue << 16;
  }
}

}  // namespace

void adjust_brightness(std::uint8_t* image, std::int64_t pixels, int channels, float factor) {
  blend_all(image, pixels * channels, 0, factor);
}

void adjust_contrast(std::uint8_t* image, std::int64_t pixels, int channels, float factor) {
  blend_all(image, pixels * channels, mean_luma(image, pixels, channels), factor);
}

void adjust_saturation(std::uint8_t* image, std::int64_t pixels, int channels, float factor) {
  if (channels == 3) blend_with_grey(image, pixels, factor);
}

void turn_hue(std::uint8_t* image, std::int64_t pixels, int channels, double turn) {
  if (channels != 3) return;
  constexpr int kTile = 256;
  std::array<int, kTile> red, green, blue, out;
  for (std::int64_t first = 0; first < pixels; first += kTile) {
    std::uint8_t* const tile = image + 3 * first;
    const auto count = static_cast<int>(std::min<std::int64_t>(kTile, pixels - first));
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      red[at] = tile[3 * i];
      green[at] = tile[3 * i + 1];
      blue[at] = tile[3 * i + 2];
    }
    turn_hue_of(red.data(), green.data(), blue.data(), count, static_cast<int>(turn * 255), out.data());
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      tile[3 * i] = static_cast<std::uint8_t>(out[at]);
      tile[3 * i + 1] = static_cast<std::uint8_t>(out[at] >> 8);
      tile[3 * i + 2] = static_cast<std::uint8_t>(out[at] >> 16);
    }
  }
}

void posterize(std::uint8_t* image, std::int64_t pixels, int channels, int bits) {
  keep_bits(image, pixels * channels, static_cast<std::uint8_t>(0xff << (8 - bits)));
}

void solarize(std::uint8_t* image, std::int64_t pixels, int channels, double threshold) {
  const double first = std::ceil(threshold);  // that is inverted
  if (first <= 255) invert_from(image, pixels * channels, static_cast<std::uint8_t>(std::max(0.0, first)));
}

void stretch_contrast(std::uint8_t* image, std::int64_t pixels, int channels) {
  remap_channels(image, pixels, channels, stretched);
}

void equalize(std::uint8_t* image, std::int64_t pixels, int channels) {
  remap_channels(image, pixels, channels, equalized);
}

}  // namespace convoy
