// SPDX-License-Identifier: Apache-2.0
//
// Policies of random operations: TrivialAugment Wide (Müller & Hutter 2021) and RandAugment (Cubuk et al. 2019), as
// torchvision applies them to PIL images, with the nearest pixel and black outside.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "io/augment/sample_random.h"

namespace convoy {

enum class ImageOperation {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};

/// torchvision's names, in the order of the values.
inline constexpr auto kImageOperations = std::to_array<std::string_view>(
    {"Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
     "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"});

inline constexpr int kMagnitudes = 31;  ///< of an operation: torchvision's num_magnitude_bins

/// An operation and how strong it is, in the units of torchvision's _apply_op: pixels, degrees, bits, ...
struct ImageChange {
  ImageOperation operation = ImageOperation::kIdentity;
  double magnitude = 0;
  bool operator==(const ImageChange&) const = default;
};

/// A policy's operation at magnitude `bin`, below kMagnitudes, before a random sign; of operations without magnitudes
/// 0.
[[nodiscard]] double trivial_magnitude(ImageOperation operation, int bin);
[[nodiscard]] double rand_magnitude(ImageOperation operation, int bin, int height, int width);

/// TrivialAugmentWide's choice: one operation of random magnitude and sign.
[[nodiscard]] ImageChange trivial_change(SampleRandom& random);
/// RandAugment's choice: `operations` random ones, each of magnitude `bin` and random sign.
[[nodiscard]] std::vector<ImageChange> rand_changes(int operations, int bin, int height, int width,
                                                    SampleRandom& random);

/// Changes an image [height, width, channels] of 1 or 3 channels in place.
void apply_change(const ImageChange& change, std::uint8_t* image, int height, int width, int channels);

}  // namespace convoy
