// SPDX-License-Identifier: Apache-2.0
//
// Shared by the targets of image files: one file on its way to a sample (io/data/image_dataset.h, io/images). The input
// is three bytes, which choose the sample's size, the channels and the augmentation, and the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/data/image_dataset.h"
#include "io/images/image_decoder.h"
#include "tests/fuzz/fuzz.h"

namespace convoy::fuzz {

class OneImage final : public EncodedImages {
 public:
  explicit OneImage(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::int64_t size() const override { return 1; }
  [[nodiscard]] std::int64_t label(std::int64_t) const override { return 0; }
  [[nodiscard]] std::int64_t classes() const override { return 1; }
  [[nodiscard]] std::vector<std::string> class_names() const override { return {}; }
  void check_labels(std::int64_t) const override {}
  [[nodiscard]] std::string name(std::int64_t) const override { return "the input"; }
  void read(std::int64_t, std::vector<std::byte>& bytes) const override { bytes = bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

inline bool is_large(const std::vector<std::byte>& bytes) {
  constexpr std::int64_t kMaxPixels = 1 << 22;  // more only cost time
  bool large = false;
  allow_errors([&] {
    ImageDecoder decoder;
    const ImageHeader header = decoder.open(bytes);
    large = std::int64_t{header.width} * header.height > kMaxPixels;
  });
  return large;
}

inline constexpr std::size_t kChoices = 3;

/// choices: kChoices bytes.
inline void use_image(const std::uint8_t* choices, std::vector<std::byte> bytes) {
  if (is_large(bytes)) return;
  ImageDataset::Options options;
  const int pixels = 1 + choices[0] % 64;
  options.size = pixels;
  options.channels = choices[1] % 2 == 0 ? 3 : 1;
  options.resize = pixels + choices[1] / 16;
  options.augmentation.crop = (choices[2] & 1) != 0;
  options.augmentation.flip = (choices[2] & 2) != 0;
  options.augmentation.jitter = (choices[2] & 4) != 0;
  options.augmentation.hue = (choices[2] & 8) != 0;
  options.augmentation.trivial = (choices[2] & 16) != 0;
  options.augmentation.rand = (choices[2] & 32) != 0;
  options.seed = choices[2] / 64;
  options.max_broken = 1;
  allow_errors([&] { use(ImageDataset(std::make_unique<OneImage>(std::move(bytes)), "input", options)); });
}

}  // namespace convoy::fuzz
