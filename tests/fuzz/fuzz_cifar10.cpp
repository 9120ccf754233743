// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: one of CIFAR-10's binary batches (io/data/cifar10.h), and the list of class names beside it, which the
// input begins with: one byte says how long it is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "io/data/cifar10.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy;
  if (size < 1) return 0;
  const std::span<const std::uint8_t> rest(data + 1, size - 1);
  const std::size_t names = std::min(rest.size(), std::size_t{data[0]});
  static_cast<void>(fuzz::folder().write("batches.meta.txt", rest.first(names)));
  const std::string batch = fuzz::folder().write("data_batch_1.bin", rest.subspan(names));
  fuzz::allow_errors([&] { fuzz::use(*open_cifar10(batch, true)); });
  return 0;
}
