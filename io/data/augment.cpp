// SPDX-License-Identifier: Apache-2.0
//
// torchvision 0.14: transforms/transforms.py and functional.py; Pillow 9.4: ImageEnhance.py, Blend.c, Convert.c.
// Python's round() goes to even, as std::nearbyint() does.
#include "io/data/augment.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "io/images/luma.h"
#include "layers/base/cpu_features.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

constexpr auto kAugmentNames = std::to_array<std::string_view>({"crop", "flip", "jitter"});
constexpr auto kAugmentMembers =
    std::to_array<bool Augmentation::*>({&Augmentation::crop, &Augmentation::flip, &Augmentation::jitter});
static_assert(kAugmentNames.size() == kAugmentMembers.size());

constexpr int kTries = 10;

int rounded(double value) { return static_cast<int>(std::nearbyint(value)); }

// Pillow's Image.blend(degenerate, image, factor): cut off to whole numbers, and to [0, 255].
std::uint8_t blend(int degenerate, int value, float factor) {
  const float mixed = static_cast<float>(degenerate) + factor * static_cast<float>(value - degenerate);
  return static_cast<std::uint8_t>(std::clamp(mixed, 0.0F, 255.0F));
}

// Brightness and contrast: every value goes the same way.
void blend_all(std::uint8_t* values, std::int64_t count, int degenerate, float factor) {
  std::array<std::uint8_t, 256> table;
  for (int value = 0; value < 256; ++value) table[static_cast<std::size_t>(value)] = blend(degenerate, value, factor);
  for (std::int64_t i = 0; i < count; ++i) values[i] = table[values[i]];
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

}  // namespace

std::span<const std::string_view> augment_names() { return kAugmentNames; }

bool Augmentation::*augment_member(std::string_view name) {
  const auto at = std::find(kAugmentNames.begin(), kAugmentNames.end(), name);
  return at == kAugmentNames.end() ? nullptr : kAugmentMembers[static_cast<std::size_t>(at - kAugmentNames.begin())];
}

SampleRandom::SampleRandom(std::uint64_t seed, const SampleId& sample)
    : key_(random_bits(random_bits(random_key(seed, "augment"), static_cast<std::uint64_t>(sample.epoch)),
                       static_cast<std::uint64_t>(sample.index))) {
  if (sample.draw > 0) key_ = random_bits(key_, static_cast<std::uint64_t>(sample.draw));
}

double SampleRandom::uniform(double low, double high) { return low + (high - low) * random_uniform(key_, counter_++); }

int SampleRandom::below(int count) { return static_cast<int>(random_uniform(key_, counter_++) * count); }

PixelBox random_resized_crop(int width, int height, const Augmentation& wanted, SampleRandom& random) {
  const double image_area = static_cast<double>(width) * height;
  const auto [narrow, wide] = wanted.ratio;
  for (int i = 0; i < kTries; ++i) {
    const double area = image_area * random.uniform(wanted.area[0], wanted.area[1]);
    const double ratio = std::exp(random.uniform(std::log(narrow), std::log(wide)));
    const int w = rounded(std::sqrt(area * ratio)), h = rounded(std::sqrt(area / ratio));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const int top = random.below(height - h + 1);
    return {random.below(width - w + 1), top, w, h};
  }
  int w = width, h = height;
  const double ratio = static_cast<double>(width) / height;
  if (ratio < narrow) h = std::clamp(rounded(w / narrow), 1, height);
  if (ratio > wide) w = std::clamp(rounded(h * wide), 1, width);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

void jitter_colors(std::uint8_t* image, std::int64_t pixels, int channels, const std::array<double, 3>& strength,
                   SampleRandom& random) {
  std::array<int, 3> order{0, 1, 2};
  for (int i = 2; i > 0; --i) {
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.below(i + 1))]);
  }
  std::array<float, 3> factors{};
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i] = static_cast<float>(random.uniform(std::max(0.0, 1 - strength[i]), 1 + strength[i]));
  }
  for (const int what : order) {
    const auto i = static_cast<std::size_t>(what);
    if (strength[i] == 0) continue;
    if (what == 0) blend_all(image, pixels * channels, 0, factors[i]);
    if (what == 1) blend_all(image, pixels * channels, mean_luma(image, pixels, channels), factors[i]);
    if (what == 2 && channels == 3) blend_with_grey(image, pixels, factors[i]);
  }
}

}  // namespace convoy
