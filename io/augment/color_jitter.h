// SPDX-License-Identifier: Apache-2.0
//
// Random changes of colours: torchvision.transforms.ColorJitter.
#pragma once

#include <array>
#include <cstdint>

#include "io/augment/sample_random.h"

namespace convoy {

/// Brightness, contrast and saturation change by a factor of max(0, 1 - strength) to 1 + strength. The hue turns by up
/// to `hue` of a circle, in [0, 0.5], to either side.
struct JitterStrength {
  std::array<double, 3> colors{};  ///< brightness, contrast, saturation
  double hue = 0;
};

/// What is done to one image: each operation with its factor, in a random order.
struct ColorChanges {
  enum Operation { kBrightness, kContrast, kSaturation, kHue };
  int count = 0;                     ///< 3, or 4 if the hue changes
  std::array<Operation, 4> order{};  ///< of which `count` are used
  std::array<double, 4> factors{};   ///< by Operation
};

/// ColorJitter.get_params.
[[nodiscard]] ColorChanges color_changes(const JitterStrength& strength, SampleRandom& random);

/// Applies random changes to `pixels` RGB pixels (or grey ones, with channels = 1, which have brightness and contrast
/// only). What has no strength is left out.
void jitter_colors(std::uint8_t* image, std::int64_t pixels, int channels, const JitterStrength& strength,
                   SampleRandom& random);

}  // namespace convoy
