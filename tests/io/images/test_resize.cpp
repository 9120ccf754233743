// SPDX-License-Identifier: Apache-2.0
//
// Against the definition in float64: output pixel i is the mean of source pixels, weighted by a triangle.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "io/images/resize.h"
#include "layers/base/random.h"

using namespace convoy;

namespace {

std::vector<std::uint8_t> noise(std::size_t count, std::uint64_t key) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(random_bits(key, i));
  return bytes;
}

// Weight of source pixel x, of `pixels`, for output i.
std::vector<double> weights(double start, double length, int outputs, int i, int pixels) {
  const double step = length / outputs, reach = std::max(1.0, step), center = start + (i + 0.5) * step;
  std::vector<double> all(static_cast<std::size_t>(pixels));
  double sum = 0;
  for (int x = 0; x < pixels; ++x) {
    all[static_cast<std::size_t>(x)] = std::max(0.0, 1 - std::abs(x + 0.5 - center) / reach);
    sum += all[static_cast<std::size_t>(x)];
  }
  for (double& weight : all) weight /= sum;
  return all;
}

double exact(const ImageView& image, const ResizeBox& box, int width, int height, int x, int y, int c) {
  const auto across = weights(box.left, box.width, width, x, image.width);
  const auto down = weights(box.top, box.height, height, y, image.height);
  double sum = 0;
  for (int v = 0; v < image.height; ++v) {
    for (int u = 0; u < image.width; ++u) {
      const std::uint8_t pixel = image.pixels[std::size_t(v) * image.stride + std::size_t(u * image.channels + c)];
      sum += down[static_cast<std::size_t>(v)] * across[static_cast<std::size_t>(u)] * pixel;
    }
  }
  return sum;
}

struct Case {
  int channels, source_width, source_height, width, height;
  ResizeBox box;
};

const std::vector<Case> kCases{
    {3, 40, 30, 17, 13, {0, 0, 40, 30}},
    {3, 40, 30, 16, 12, {3.25, 2.5, 30.5, 21.75}},
    {1, 40, 30, 17, 13, {5, 4, 33, 20}},
    {3, 9, 7, 31, 33, {0, 0, 9, 7}},
    {3, 1, 1, 8, 8, {0, 0, 1, 1}},
    {3, 64, 48, 1, 1, {0, 0, 64, 48}},
    {1, 3, 90, 5, 4, {0.5, 0, 2, 90}},
    {3, 100, 20, 8, 8, {0.125, 0.375, 99.5, 19.5}},
    {3, 40, 30, 38, 28, {1, 1, 38, 28}},
    {3, 40, 30, 25, 19, {0.3, 0.1, 37.5, 28.5}},
    {3, 40, 30, 15, 11, {2.1, 1.7, 37.6, 27.6}},
};

}  // namespace

TEST_CASE("resize: the triangle filter, and vectors give the bytes of plain code") {
  Resizer resizer;
  for (const Case& c : kCases) {
    for (const bool flip : {false, true}) {
      const auto pixels = noise(static_cast<std::size_t>(c.source_width * c.source_height * c.channels), 7);
      const ImageView image{pixels.data(), c.source_width, c.source_height, c.channels,
                            static_cast<std::size_t>(c.source_width * c.channels)};
      std::vector<std::uint8_t> out(static_cast<std::size_t>(c.width * c.height * c.channels)), plain(out);
      resizer.resize(image, c.box, c.width, c.height, flip, out.data());
      resizer.resize_plainly(image, c.box, c.width, c.height, flip, plain.data());
      CHECK(out == plain);
      double sum = 0, worst = 0;
      for (int y = 0; y < c.height; ++y) {
        for (int x = 0; x < c.width; ++x) {
          for (int channel = 0; channel < c.channels; ++channel) {
            const double wanted = exact(image, c.box, c.width, c.height, flip ? c.width - 1 - x : x, y, channel);
            const double difference =
                std::abs(wanted - out[static_cast<std::size_t>((y * c.width + x) * c.channels + channel)]);
            sum += difference;
            worst = std::max(worst, difference);
          }
        }
      }
      // Rounding to whole levels alone is up to 0.5, and 0.25 in the mean; weights of 14 bits add to that, and
      // Pillow's cut-off window leaves out pixels of almost no weight.
      CHECK(worst < 1.0);
      CHECK(sum / static_cast<double>(out.size()) < 0.35);
    }
  }
}

TEST_CASE("resize: nothing changes where nothing should") {
  Resizer resizer;
  const auto pixels = noise(30 * 20 * 3, 3);
  const ImageView image{pixels.data(), 30, 20, 3, 90};
  std::vector<std::uint8_t> out(pixels.size());
  resizer.resize(image, {0, 0, 30, 20}, 30, 20, false, out.data());
  CHECK(out == pixels);
  // A part of it, moved by whole pixels.
  out.resize(10 * 8 * 3);
  resizer.resize({pixels.data() + 5 * 90 + 4 * 3, 10, 8, 3, 90}, {0, 0, 10, 8}, 10, 8, false, out.data());
  for (int y = 0; y < 8; ++y)
    CHECK(std::equal(out.begin() + y * 30, out.begin() + y * 30 + 30, pixels.begin() + (y + 5) * 90 + 12));
  for (const int level : {0, 1, 127, 254, 255}) {
    const std::vector<std::uint8_t> flat(50 * 41 * 3, static_cast<std::uint8_t>(level));
    std::vector<std::uint8_t> small(13 * 11 * 3);
    resizer.resize({flat.data(), 50, 41, 3, 150}, {0.3, 0.7, 48.2, 39.9}, 13, 11, false, small.data());
    CHECK(std::count(small.begin(), small.end(), static_cast<std::uint8_t>(level)) == 13 * 11 * 3);
  }
}
