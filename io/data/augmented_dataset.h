// SPDX-License-Identifier: Apache-2.0
//
// Small images of one size (CIFAR-10, MNIST, /images of an HDF5 file), augmented for training: a random crop out of the
// image with a black border, a flip, and changes of its pixels. Invariant: a sample is a pure function of (data, seed,
// epoch, index).
#pragma once

#include <cstdint>
#include <memory>

#include "io/data/augment.h"
#include "io/data/dataset.h"

namespace convoy {

class AugmentedDataset final : public WrappedDataset {
 public:
  /// data: images, uint8 or float32.
  AugmentedDataset(std::unique_ptr<Dataset> data, const Augmentation& augmentation, std::uint64_t seed);

  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override;

 private:
  const Augmentation augmentation_;
  const std::uint64_t seed_;
};

/// torchvision.transforms.RandomCrop((height, width), padding) and a mirror: out(x, y) is the pixel of `image`,
/// [height, width, pixel_bytes], moved by (left, top) in the image with its border; black (zero) outside. `out` must
/// not overlap it.
void shift_image(const std::uint8_t* image, int height, int width, int pixel_bytes, int padding, int left, int top,
                 bool flip, std::uint8_t* out);

}  // namespace convoy
