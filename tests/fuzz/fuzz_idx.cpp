// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: MNIST's files (io/data/idx.h), plain or gzipped. The input is two bytes, big-endian: the length of the
// file of images, which follows, and the file of labels after that.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/data/idx.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy;
  if (size < 2) return 0;
  const std::span<const std::uint8_t> rest(data + 2, size - 2);
  const std::size_t length = std::min(rest.size(), std::size_t{data[0]} << 8U | data[1]);
  const std::string images = fuzz::folder().write("images-idx3", rest.first(length));
  static_cast<void>(fuzz::folder().write("labels-idx1", rest.subspan(length)));
  fuzz::allow_errors([&] { fuzz::use(*open_idx(images, true)); });
  return 0;
}
