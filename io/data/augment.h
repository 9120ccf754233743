// SPDX-License-Identifier: Apache-2.0
//
// The random changes of training samples by name, in their order, and the box of a crop, as torchvision's transforms
// choose it. Relies on io/augment.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "io/augment/sample_random.h"
#include "io/images/decoded_image.h"

namespace convoy {

/// What is done to a training sample, with torchvision's defaults.
struct Augmentation {
  bool crop = false;                                  ///< RandomResizedCrop, or of small images RandomCrop
  bool flip = false;                                  ///< RandomHorizontalFlip(0.5)
  bool jitter = false;                                ///< ColorJitter of brightness, contrast and saturation
  bool trivial = false;                               ///< TrivialAugmentWide
  bool rand = false;                                  ///< RandAugment
  bool repeated = false;                              ///< several times in an epoch: the sampler's matter
  bool hue = false;                                   ///< ColorJitter of the hue; together with jitter one ColorJitter
  std::array<double, 2> area{0.08, 1.0};              ///< of the crop, as a share of the image
  std::array<double, 2> ratio{3.0 / 4.0, 4.0 / 3.0};  ///< of the crop, width over height
  int padding = 4;                                    ///< of small images: black pixels on each side before the crop
  std::array<double, 3> strength{0.4, 0.4, 0.4};      ///< of the jitter: brightness, contrast, saturation
  int rand_operations = 2;                            ///< of an image
  int rand_magnitude = 9;                             ///< of them: 0 to 30
  double hue_strength = 0.1;                          ///< of the hue: largest part of a circle, to either side

  [[nodiscard]] bool any() const { return crop || flip || trivial || rand || jitter || hue; }
};

/// The names of the random changes, which data.augment lists.
[[nodiscard]] std::span<const std::string_view> augment_names();
/// The change of that name; nullptr for an unknown name.
[[nodiscard]] bool Augmentation::*augment_member(std::string_view name);

/// torchvision.transforms.RandomResizedCrop.get_params: ten tries at a box of random area and ratio, then the largest
/// central box of an allowed ratio.
[[nodiscard]] PixelBox random_resized_crop(int width, int height, const Augmentation& wanted, SampleRandom& random);

/// Throws an OptionError of data.augment if a change that is wanted is not for images of so many channels.
void check_channels(const Augmentation& wanted, std::int64_t channels);

/// What comes after crop and flip, in place, of an image [height, width, channels]: a policy, then colours.
void change_image(std::uint8_t* image, int height, int width, int channels, const Augmentation& wanted,
                  SampleRandom& random);

}  // namespace convoy
