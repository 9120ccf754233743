// SPDX-License-Identifier: Apache-2.0
#include "io/data/augmented_dataset.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "layers/base/option_error.h"

namespace convoy {

AugmentedDataset::AugmentedDataset(std::unique_ptr<Dataset> data, const Augmentation& augmentation, std::uint64_t seed)
    : WrappedDataset(std::move(data)), augmentation_(augmentation), seed_(seed) {
  const Shape shape = sample_shape();
  if (input_dtype() != DType::kU8 || shape.rank() != 3) {
    fail_option("data.augment", "samples are {} {}, and only uint8 images can be augmented (leave it out)",
                dtype_name(input_dtype()), shape.str());
  }
  if (augmentation_.jitter && shape[0] != 1 && shape[0] != 3) {
    fail_option("data.augment", "\"jitter\" is for images of 1 or 3 channels, and these have {} (leave it out)",
                shape[0]);
  }
}

void AugmentedDataset::read(const SampleId& sample, void* input, std::int64_t* label, float* target) const {
  if (input == nullptr) {
    this->data().read(sample, input, label, target);
    return;
  }
  const Shape shape = sample_shape();
  const auto [channels, height, width] =
      std::array{static_cast<int>(shape[0]), static_cast<int>(shape[1]), static_cast<int>(shape[2])};
  thread_local std::vector<std::uint8_t> plain;  // grows once per thread
  plain.resize(static_cast<std::size_t>(shape.size()));
  this->data().read(sample, plain.data(), label, target);

  SampleRandom random(seed_, sample);
  const int padding = augmentation_.crop ? augmentation_.padding : 0;
  const int top = random.below(2 * padding + 1), left = random.below(2 * padding + 1);
  const bool flip = augmentation_.flip && random.coin();
  auto* out = static_cast<std::uint8_t*>(input);
  shift_image(plain.data(), height, width, channels, padding, left, top, flip, out);
  if (augmentation_.jitter) {
    jitter_colors(out, std::int64_t{height} * width, channels, augmentation_.strength, random);
  }
}

void shift_image(const std::uint8_t* image, int height, int width, int channels, int padding, int left, int top,
                 bool flip, std::uint8_t* out) {
  const auto pixel = static_cast<std::size_t>(channels);
  for (int y = 0; y < height; ++y) {
    const int row = y + top - padding;
    for (int x = 0; x < width; ++x, out += pixel) {
      const int column = (flip ? width - 1 - x : x) + left - padding;
      if (row < 0 || row >= height || column < 0 || column >= width) {
        std::memset(out, 0, pixel);
      } else {
        std::memcpy(out, image + (std::size_t(row) * std::size_t(width) + std::size_t(column)) * pixel, pixel);
      }
    }
  }
}

}  // namespace convoy
