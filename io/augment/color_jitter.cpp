// SPDX-License-Identifier: Apache-2.0
#include "io/augment/color_jitter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "io/images/color_operations.h"

namespace convoy {

ColorChanges color_changes(const JitterStrength& strength, SampleRandom& random) {
  ColorChanges result;
  result.count = strength.hue > 0 ? 4 : 3;  // without hue the numbers are drawn as for three
  result.order = {ColorChanges::kBrightness, ColorChanges::kContrast, ColorChanges::kSaturation, ColorChanges::kHue};
  for (int i = result.count - 1; i > 0; --i) {
    std::swap(result.order[static_cast<std::size_t>(i)], result.order[static_cast<std::size_t>(random.below(i + 1))]);
  }
  for (std::size_t i = 0; i < strength.colors.size(); ++i) {
    result.factors[i] = random.uniform(std::max(0.0, 1 - strength.colors[i]), 1 + strength.colors[i]);
  }
  if (strength.hue > 0) result.factors[ColorChanges::kHue] = random.uniform(-strength.hue, strength.hue);
  return result;
}

void jitter_colors(std::uint8_t* image, std::int64_t pixels, int channels, const JitterStrength& strength,
                   SampleRandom& random) {
  const ColorChanges changes = color_changes(strength, random);
  for (int i = 0; i < changes.count; ++i) {
    const auto what = changes.order[static_cast<std::size_t>(i)];
    const double factor = changes.factors[what];
    if (what == ColorChanges::kHue) {
      turn_hue(image, pixels, channels, factor);
      continue;
    }
    if (strength.colors[what] == 0) continue;
    if (what == ColorChanges::kBrightness) adjust_brightness(image, pixels, channels, static_cast<float>(factor));
    if (what == ColorChanges::kContrast) adjust_contrast(image, pixels, channels, static_cast<float>(factor));
    if (what == ColorChanges::kSaturation) adjust_saturation(image, pixels, channels, static_cast<float>(factor));
  }
}

}  // namespace convoy
