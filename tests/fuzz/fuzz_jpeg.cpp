// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: JPEG files (one_image.h; jpeg.h, exif.h, resize.h, augment.h).
#include "tests/fuzz/one_image.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy::fuzz;
  if (size < kChoices) return 0;
  const auto file = std::as_bytes(std::span(data + kChoices, size - kChoices));
  use_image(data, {file.begin(), file.end()});
  return 0;
}
