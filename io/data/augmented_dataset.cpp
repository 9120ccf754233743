// SPDX-License-Identifier: Apache-2.0
#include "io/data/augmented_dataset.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "layers/base/option_error.h"

namespace convoy {

namespace {

// Writes the pixels of a row in the opposite order.
template <std::size_t kChannels>
void mirror_pixels(const std::uint8_t* row, int pixels, std::uint8_t* out) {
  const std::uint8_t* from = row + static_cast<std::size_t>(pixels) * kChannels;
  for (int i = 0; i < pixels; ++i, out += kChannels) std::memcpy(out, from -= kChannels, kChannels);
}

// The same of RGB: two pixels at a time as one word of 8 bytes, of which 6 are theirs. The 2 others are read from the
// pixel behind them and written where the next pixel goes, so the first and the last one or two are moved alone.
void mirror_rgb(const std::uint8_t* row, int pixels, std::uint8_t* out) {
  const int words = std::endian::native == std::endian::little ? std::max(0, (pixels - 2) / 2) : 0;
  const int single = pixels - 2 * words;  // one of them first
  if (words == 0) return mirror_pixels<3>(row, pixels, out);
  const std::uint8_t* from = row + 3 * static_cast<std::size_t>(pixels) - 3;
  std::memcpy(out, from, 3);
  out += 3;
  for (int i = 0; i < words; ++i, out += 6) {
    std::uint64_t word = 0;
    std::memcpy(&word, from -= 6, 8);
    word = (word >> 24 & 0xffffff) | (word & 0xffffff) << 24;
    std::memcpy(out, &word, 8);
  }
  mirror_pixels<3>(row, single - 1, out);
}

void mirror_row(const std::uint8_t* row, int pixels, int pixel_bytes, std::uint8_t* out) {
  if (pixel_bytes == 1) return mirror_pixels<1>(row, pixels, out);
  if (pixel_bytes == 3) return mirror_rgb(row, pixels, out);
  const auto pixel = static_cast<std::size_t>(pixel_bytes);
  const std::uint8_t* from = row + static_cast<std::size_t>(pixels) * pixel;
  for (int i = 0; i < pixels; ++i, out += pixel) std::memcpy(out, from -= pixel, pixel);
}

}  // namespace

AugmentedDataset::AugmentedDataset(std::unique_ptr<Dataset> data, const Augmentation& augmentation, std::uint64_t seed)
    : WrappedDataset(std::move(data)), augmentation_(augmentation), seed_(seed) {
  const Shape shape = sample_shape();
  const bool signals = shape.rank() == 3 && shape[1] == 1 && input_dtype() == DType::kF32;
  if (shape.rank() != 3 || signals) {
    fail_option("data.augment", "samples are {} {}, and only images can be augmented (leave it out)",
                dtype_name(input_dtype()), shape.str());
  }
  check_channels(augmentation_, shape[0]);
}

void AugmentedDataset::read(const SampleId& sample, void* input, std::int64_t* label, float* target) const {
  if (input == nullptr) {
    this->data().read(sample, input, label, target);
    return;
  }
  const Shape shape = sample_shape();
  const auto [channels, height, width] =
      std::array{static_cast<int>(shape[0]), static_cast<int>(shape[1]), static_cast<int>(shape[2])};
  SampleRandom random(seed_, sample);
  const int padding = augmentation_.crop ? augmentation_.padding : 0;
  const int top = random.below(2 * padding + 1), left = random.below(2 * padding + 1);
  const bool flip = augmentation_.flip && random.coin();
  auto* out = static_cast<std::uint8_t*>(input);
  if (top == padding && left == padding && !flip) {
    this->data().read(sample, out, label, target);
  } else {
    thread_local std::vector<std::uint8_t> plain;  // grows once per thread
    plain.resize(static_cast<std::size_t>(shape.size()) * dtype_size(input_dtype()));
    this->data().read(sample, plain.data(), label, target);
    const int pixel_bytes = channels * static_cast<int>(dtype_size(input_dtype()));
    shift_image(plain.data(), height, width, pixel_bytes, padding, left, top, flip, out);
  }
  change_image(out, height, width, channels, augmentation_, random);
}

void shift_image(const std::uint8_t* image, int height, int width, int pixel_bytes, int padding, int left, int top,
                 bool flip, std::uint8_t* out) {
  const auto pixel = static_cast<std::size_t>(pixel_bytes), row_bytes = static_cast<std::size_t>(width) * pixel;
  const int move = left - padding;
  const int first = std::clamp(move, 0, width), last = std::clamp(width + move, 0, width);  // columns that are seen
  const auto shown = static_cast<std::size_t>(last - first) * pixel;
  const auto before = static_cast<std::size_t>(std::clamp(flip ? move : -move, 0, width)) * pixel;
  for (int y = 0; y < height; ++y, out += row_bytes) {
    const int row = y + top - padding;
    if (row < 0 || row >= height || shown == 0) {
      std::memset(out, 0, row_bytes);
      continue;
    }
    const std::uint8_t* from =
        image + static_cast<std::size_t>(row) * row_bytes + static_cast<std::size_t>(first) * pixel;
    std::memset(out, 0, before);
    if (flip) {
      mirror_row(from, last - first, pixel_bytes, out + before);
    } else {
      std::memcpy(out + before, from, shown);
    }
    std::memset(out + before + shown, 0, row_bytes - before - shown);
  }
}

}  // namespace convoy
