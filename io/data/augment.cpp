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

constexpr auto kAugmentNames = std::to_array<std::string_view>(
    {"crop", "flip", "trivial", "rand", "jitter", "hue", "repeated", "erase", "mixup", "cutmix"});
constexpr auto kAugmentMembers = std::to_array<bool Augmentation::*>(
    {&Augmentation::crop, &Augmentation::flip, &Augmentation::trivial, &Augmentation::rand, &Augmentation::jitter,
     &Augmentation::hue, &Augmentation::repeated, &Augmentation::erase, &Augmentation::mixup, &Augmentation::cutmix});
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

PixelBox random_erasing(int width, int height, const Augmentation& wanted, SampleRandom& random) {
  if (random.uniform(0, 1) >= wanted.erase_probability) return {0, 0, 0, 0};
  const auto [flat, tall] = wanted.erase_ratio;
  for (int i = 0; i < kTries; ++i) {
    const double area = random.uniform(wanted.erase_area[0], wanted.erase_area[1]) * width * height;
    const double ratio = std::exp(random.uniform(std::log(flat), std::log(tall)));
    const int h = rounded(std::sqrt(area * ratio)), w = rounded(std::sqrt(area / ratio));
    if (h >= height || w >= width) continue;
    const int top = random.below(height - h + 1);
    return {random.below(width - w + 1), top, w, h};
  }
  return {0, 0, 0, 0};
}

namespace {

// The logarithm of a number from the gamma distribution of this shape (Marsaglia & Tsang 2000): that of shape + 1,
// times u^(1 / shape). Small shapes would underflow without the logarithm.
double log_gamma_variate(double shape, SampleRandom& random) {
  const double d = shape + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  const double boost = std::log(1 - random.uniform(0, 1)) / shape;
  while (true) {
    const double x = random.normal(), v = std::pow(1 + c * x, 3);
    const double u = 1 - random.uniform(0, 1);  // (0, 1]
    if (v > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v) + boost;
  }
}

double symmetric_beta_variate(double alpha, SampleRandom& random) {
  const double first = log_gamma_variate(alpha, random), second = log_gamma_variate(alpha, random);
  return 1 / (1 + std::exp(second - first));
}

}  // namespace

Mixing random_mixing(std::int64_t width, std::int64_t height, const Augmentation& wanted, std::uint64_t seed,
                     std::int64_t epoch, std::int64_t position) {
  SampleRandom random(seed, {position, epoch}, "mix");
  const bool cutmix = wanted.cutmix && (!wanted.mixup || random.coin());
  double share = symmetric_beta_variate(cutmix ? wanted.cutmix_alpha : wanted.mixup_alpha, random);
  Mixing mixing;
  if (cutmix) {
    const auto x = random.below(static_cast<int>(width)), y = random.below(static_cast<int>(height));
    const double half = 0.5 * std::sqrt(1 - share);
    const auto half_width = static_cast<std::int64_t>(half * static_cast<double>(width));
    const auto half_height = static_cast<std::int64_t>(half * static_cast<double>(height));
    const std::int64_t left = std::max<std::int64_t>(x - half_width, 0), right = std::min(x + half_width, width);
    const std::int64_t top = std::max<std::int64_t>(y - half_height, 0), bottom = std::min(y + half_height, height);
    mixing.box = {left, top, right - left, bottom - top};
    mixing.pixels = {0, 1};
    share = 1 - static_cast<double>(mixing.box[2] * mixing.box[3]) / static_cast<double>(width * height);
  } else {
    mixing.box = {0, 0, width, height};
    mixing.pixels = {static_cast<float>(share), static_cast<float>(1 - share)};
  }
  mixing.labels = {static_cast<float>(share), static_cast<float>(1 - share)};
  return mixing;
}

}  // namespace convoy
