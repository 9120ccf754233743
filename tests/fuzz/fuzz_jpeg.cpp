// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: JPEG files on their way to samples (io/data/image_dataset.h, jpeg.h, exif.h, resize.h, augment.h). The
// input is three bytes, which choose the sample's size, the channels and the augmentation, and the file.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/data/image_dataset.h"
#include "io/images/jpeg.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace convoy;

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

bool is_large(const std::vector<std::byte>& bytes) {
  constexpr std::int64_t kMaxPixels = 1 << 22;  // more only cost time
  bool large = false;
  fuzz::allow_errors([&] {
    JpegDecoder decoder;
    const JpegHeader header = decoder.open(bytes);
    large = std::int64_t{header.width} * header.height > kMaxPixels;
  });
  return large;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const auto file = std::as_bytes(std::span(data + 3, size - 3));
  std::vector<std::byte> bytes(file.begin(), file.end());
  if (is_large(bytes)) return 0;
  ImageDataset::Options options;
  const int pixels = 1 + data[0] % 64;
  options.size = pixels;
  options.channels = data[1] % 2 == 0 ? 3 : 1;
  options.resize = pixels + data[1] / 16;
  options.augmentation.crop = (data[2] & 1) != 0;
  options.augmentation.flip = (data[2] & 2) != 0;
  options.augmentation.jitter = (data[2] & 4) != 0;
  options.augmentation.hue = (data[2] & 8) != 0;
  options.augmentation.trivial = (data[2] & 16) != 0;
  options.augmentation.rand = (data[2] & 32) != 0;
  options.seed = data[2] / 64;
  options.max_broken = 1;
  fuzz::allow_errors([&] { fuzz::use(ImageDataset(std::make_unique<OneImage>(std::move(bytes)), "input", options)); });
  return 0;
}
