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
#include "layers/base/batch.h"

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

  // What is done to normalised batches on the device.
  bool erase = false;                  ///< RandomErasing with 0
  bool mixup = false, cutmix = false;  ///< RandomMixup, RandomCutmix of torchvision's references; both: one a batch
  double erase_probability = 0.1;      ///< of an image
  std::array<double, 2> erase_area{0.02, 0.33};  ///< of the box, as a share of the image
  std::array<double, 2> erase_ratio{0.3, 3.3};   ///< of the box, height over width
  double mixup_alpha = 0.2, cutmix_alpha = 1.0;  ///< of the beta distributions

  [[nodiscard]] bool any() const {
    return crop || flip || trivial || rand || jitter || hue;
  }  ///< of what is done to samples
  [[nodiscard]] bool mixes() const { return mixup || cutmix; }
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

/// torchvision.transforms.RandomErasing with its probability: the box to erase, of no pixels for none.
[[nodiscard]] PixelBox random_erasing(int width, int height, const Augmentation& wanted, SampleRandom& random);

/// The mixing of the batch whose first sample, of the global batch, is at `position` of the epoch.
[[nodiscard]] Mixing random_mixing(std::int64_t width, std::int64_t height, const Augmentation& wanted,
                                   std::uint64_t seed, std::int64_t epoch, std::int64_t position);

}  // namespace convoy
