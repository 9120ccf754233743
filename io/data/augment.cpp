// SPDX-License-Identifier: Apache-2.0
//
// torchvision 0.14: transforms/transforms.py. Python's round() goes to even, as std::nearbyint() does.
#include "io/data/augment.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "io/augment/auto_augment.h"
#include "io/augment/color_jitter.h"
#include "layers/base/option_error.h"

namespace convoy {

namespace {

constexpr auto kAugmentNames =
    std::to_array<std::string_view>({"crop", "flip", "trivial", "rand", "jitter", "hue", "repeated"});
constexpr auto kAugmentMembers = std::to_array<bool Augmentation::*>(
    {&Augmentation::crop, &Augmentation::flip, &Augmentation::trivial, &Augmentation::rand, &Augmentation::jitter,
     &Augmentation::hue, &Augmentation::repeated});
static_assert(kAugmentNames.size() == kAugmentMembers.size());

constexpr int kTries = 10;

int rounded(double value) { return static_cast<int>(std::nearbyint(value)); }

}  // namespace

std::span<const std::string_view> augment_names() { return kAugmentNames; }

bool Augmentation::*augment_member(std::string_view name) {
  const auto at = std::find(kAugmentNames.begin(), kAugmentNames.end(), name);
  return at == kAugmentNames.end() ? nullptr : kAugmentMembers[static_cast<std::size_t>(at - kAugmentNames.begin())];
}

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

void check_channels(const Augmentation& wanted, std::int64_t channels) {
  const auto refuse = [channels](std::string_view name, const char* needed) {
    fail_option("data.augment", "\"{}\" is for images of {}, and these have {} (leave it out)", name, needed, channels);
  };
  if (wanted.hue && channels != 3) refuse("hue", "3 channels");
  if (channels == 1 || channels == 3) return;
  for (const std::string_view name : {"trivial", "rand", "jitter"}) {
    if (wanted.*augment_member(name)) refuse(name, "1 or 3 channels");
  }
}

void change_image(std::uint8_t* image, int height, int width, int channels, const Augmentation& wanted,
                  SampleRandom& random) {
  if (wanted.trivial) apply_change(trivial_change(random), image, height, width, channels);
  if (wanted.rand) {
    for (const ImageChange& change :
         rand_changes(wanted.rand_operations, wanted.rand_magnitude, height, width, random)) {
      apply_change(change, image, height, width, channels);
    }
  }
  if (wanted.jitter || wanted.hue) {
    const JitterStrength strength{wanted.jitter ? wanted.strength : std::array<double, 3>{},
                                  wanted.hue ? wanted.hue_strength : 0};
    jitter_colors(image, std::int64_t{height} * width, channels, strength, random);
  }
}

}  // namespace convoy
