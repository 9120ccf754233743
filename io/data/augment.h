// SPDX-License-Identifier: Apache-2.0
//
// The random choices of augmentation, and the boxes of evaluation, as torchvision's transforms make them. Relies on
// layers/base/random.h. Invariant: a choice is a pure function of (seed, epoch, index): not of ranks, threads, or where
// a run was resumed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "io/data/dataset.h"
#include "io/images/jpeg.h"
#include "layers/base/batch.h"

namespace convoy {

/// What is done to a training sample, with torchvision's defaults.
struct Augmentation {
  bool crop = false;                                  ///< RandomResizedCrop, or of small images RandomCrop
  bool flip = false;                                  ///< RandomHorizontalFlip(0.5)
  bool jitter = false;                                ///< ColorJitter without hue
  std::array<double, 2> area{0.08, 1.0};              ///< of the crop, as a share of the image
  std::array<double, 2> ratio{3.0 / 4.0, 4.0 / 3.0};  ///< of the crop, width over height
  int padding = 4;                                    ///< of small images: black pixels on each side before the crop
  std::array<double, 3> strength{0.4, 0.4, 0.4};      ///< of the jitter: brightness, contrast, saturation

  // What is done to normalised batches on the device.
  bool erase = false;                  ///< RandomErasing with 0
  bool mixup = false, cutmix = false;  ///< RandomMixup, RandomCutmix of torchvision's references; both: one a batch
  double erase_probability = 0.1;      ///< of an image
  std::array<double, 2> erase_area{0.02, 0.33};  ///< of the box, as a share of the image
  std::array<double, 2> erase_ratio{0.3, 3.3};   ///< of the box, height over width
  double mixup_alpha = 0.2, cutmix_alpha = 1.0;  ///< of the beta distributions

  [[nodiscard]] bool any() const { return crop || flip || jitter; }  ///< of what is done to samples
  [[nodiscard]] bool mixes() const { return mixup || cutmix; }
};

/// The names of the random changes, which data.augment lists.
[[nodiscard]] std::span<const std::string_view> augment_names();
/// The change of that name; nullptr for an unknown name.
[[nodiscard]] bool Augmentation::*augment_member(std::string_view name);

/// The random numbers of one sample in one epoch, one after the other.
class SampleRandom {
 public:
  /// purpose: other numbers for each.
  SampleRandom(std::uint64_t seed, const SampleId& sample, std::string_view purpose = "augment");
  /// Uniform on [low, high).
  double uniform(double low, double high);
  /// Uniform on 0, ..., count - 1.
  int below(int count);
  double normal();
  bool coin() { return uniform(0, 1) < 0.5; }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

/// torchvision.transforms.RandomResizedCrop.get_params: ten tries at a box of random area and ratio, then the largest
/// central box of an allowed ratio.
[[nodiscard]] PixelBox random_resized_crop(int width, int height, const Augmentation& wanted, SampleRandom& random);

/// Brightness, contrast and saturation of `pixels` RGB pixels (or grey ones, with channels = 1) in a random order, each
/// by a random factor of 1 - strength to 1 + strength: torchvision's ColorJitter with Pillow's formulas (ImageEnhance,
/// Image.blend).
void jitter_colors(std::uint8_t* image, std::int64_t pixels, int channels, const std::array<double, 3>& strength,
                   SampleRandom& random);

/// torchvision.transforms.RandomErasing with its probability: the box to erase, of no pixels for none.
[[nodiscard]] PixelBox random_erasing(int width, int height, const Augmentation& wanted, SampleRandom& random);

/// The mixing of the batch whose first sample, of the global batch, is at `position` of the epoch.
[[nodiscard]] Mixing random_mixing(std::int64_t width, std::int64_t height, const Augmentation& wanted,
                                   std::uint64_t seed, std::int64_t epoch, std::int64_t position);

}  // namespace convoy
