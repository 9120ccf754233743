// SPDX-License-Identifier: Apache-2.0
//
// The random choices of colour jitter, their distribution with fixed seeds, and what has a closed form. tests/interop
// compares pixels with torchvision's.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "io/augment/color_jitter.h"
#include "tests/io/augment/chi_square.h"

using namespace convoy;
using namespace convoy::test;

TEST_CASE("hue: the order of four is uniform, and so is the turn") {
  constexpr int kSamples = 24000;
  std::map<std::array<ColorChanges::Operation, 4>, int> orders;
  std::vector<int> turns(20);
  for (int i = 0; i < kSamples; ++i) {
    SampleRandom random(3, {i, 1});
    const ColorChanges changes = color_changes({{0.4, 0.4, 0.4}, 0.25}, random);
    REQUIRE(changes.count == 4);
    ++orders[changes.order];
    const double turn = changes.factors[ColorChanges::kHue];
    REQUIRE(turn >= -0.25);
    REQUIRE(turn < 0.25);
    ++turns[static_cast<std::size_t>((turn + 0.25) * 40)];
  }
  std::vector<int> counts;
  for (const auto& [order, count] : orders) counts.push_back(count);
  CHECK(counts.size() == 24);
  CHECK(chi_square(counts) < chi_square_limit(24));
  CHECK(chi_square(turns) < chi_square_limit(20));
}

TEST_CASE("without hue jitter draws what it drew before there was hue") {
  for (int i = 0; i < 50; ++i) {
    SampleRandom random(3, i), same(3, i);
    const ColorChanges changes = color_changes({{0.4, 0.5, 1.5}}, random);
    std::array<int, 3> order{0, 1, 2};
    std::swap(order[2], order[static_cast<std::size_t>(same.below(3))]);
    std::swap(order[1], order[static_cast<std::size_t>(same.below(2))]);
    REQUIRE(changes.count == 3);
    for (std::size_t k = 0; k < 3; ++k) CHECK(int{changes.order[k]} == order[k]);
    CHECK(changes.factors[0] == same.uniform(0.6, 1.4));
    CHECK(changes.factors[1] == same.uniform(0.5, 1.5));
    CHECK(changes.factors[2] == same.uniform(0, 2.5));
  }
}

TEST_CASE("hue leaves grey pixels, and grey images, as they are") {
  std::vector<std::uint8_t> image;
  for (int level = 0; level < 256; ++level) image.insert(image.end(), 3, static_cast<std::uint8_t>(level));
  for (const int channels : {1, 3}) {
    auto copy = image;
    SampleRandom random(1, channels);
    jitter_colors(copy.data(), std::int64_t{768} / channels, channels, {{}, 0.5}, random);
    CHECK(copy == image);
  }
}

TEST_CASE("colour jitter: no strength changes nothing, and factors stay within theirs") {
  std::vector<std::uint8_t> image(30 * 3);
  std::iota(image.begin(), image.end(), std::uint8_t{60});
  auto copy = image;
  SampleRandom random(1, 1);
  jitter_colors(copy.data(), 30, 3, {0, 0, 0}, random);
  CHECK(copy == image);
  double least = 9, most = 0;
  for (int i = 0; i < 300; ++i) {
    copy = image;
    SampleRandom own(1, i);
    jitter_colors(copy.data(), 30, 3, {0.4, 0, 0}, own);
    const double factor = copy[89] / double(image[89]);
    CHECK(std::abs(copy[0] - std::floor(image[0] * factor)) <= 1);  // one factor for all, cut off to whole numbers
    least = std::min(least, factor);
    most = std::max(most, factor);
  }
  CHECK(least > 0.58);
  CHECK(least < 0.65);
  CHECK(most < 1.41);
  CHECK(most > 1.35);
  // Contrast and saturation have fixed points: the mean grey, and grey pixels.
  std::vector<std::uint8_t> grey(30 * 3, 77);
  for (int i = 0; i < 20; ++i) {
    SampleRandom own(2, i);
    jitter_colors(grey.data(), 30, 3, {0, 0.9, 0.9}, own);
  }
  CHECK(std::count(grey.begin(), grey.end(), 77) == 90);
}

TEST_CASE("saturation is Pillow's blend with the grey of each pixel, in every bit") {
  constexpr int kPixels = 1003;  // no whole number of vectors
  std::vector<std::uint8_t> image(3 * kPixels);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::uint8_t>(i * i * 7 + i / 5);
  for (int i = 0; i < 20; ++i) {
    auto copy = image;
    SampleRandom random(4, i), same(4, i);
    jitter_colors(copy.data(), kPixels, 3, {0, 0, 0.9}, random);
    for (const int count : {3, 2}) static_cast<void>(same.below(count));  // the order
    for (int unused = 0; unused < 2; ++unused) static_cast<void>(same.uniform(1, 1));
    const auto factor = static_cast<float>(same.uniform(1 - 0.9, 1 + 0.9));
    for (std::size_t at = 0; at < image.size(); ++at) {
      const std::uint8_t* rgb = image.data() + at / 3 * 3;
      const int grey = (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
      const float product = factor * static_cast<float>(image[at] - grey);
      const double mixed = static_cast<float>(double{product} + grey);  // each operation rounded to float once
      REQUIRE(copy[at] == static_cast<std::uint8_t>(std::clamp(mixed, 0.0, 255.0)));
    }
  }
}
