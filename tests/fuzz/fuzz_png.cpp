// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: PNG files (one_image.h; png.h). Unless the first bit of the first byte is set, the checksums of all
// chunks are made right, so that changed bytes are not only refused by these.
#include <zlib.h>

#include "tests/fuzz/one_image.h"

namespace {

void repair_checksums(std::vector<std::byte>& bytes) {
  auto* const data = reinterpret_cast<unsigned char*>(bytes.data());
  constexpr std::size_t kSignature = 8, kFrame = 12;  // length, type and checksum of a chunk
  for (std::size_t at = kSignature; at + kFrame <= bytes.size();) {
    const std::size_t length = std::size_t{data[at]} << 24 | std::size_t{data[at + 1]} << 16 |
                               std::size_t{data[at + 2]} << 8 | std::size_t{data[at + 3]};
    if (length > bytes.size() - at - kFrame) return;
    const auto crc = ::crc32_z(0, data + at + 4, length + 4);
    for (std::size_t i = 0; i < 4; ++i) data[at + 8 + length + i] = static_cast<unsigned char>(crc >> (24 - 8 * i));
    at += kFrame + length;
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy::fuzz;
  if (size < kChoices) return 0;
  const auto file = std::as_bytes(std::span(data + kChoices, size - kChoices));
  std::vector<std::byte> bytes(file.begin(), file.end());
  if ((data[0] & 0x80) == 0) repair_checksums(bytes);
  use_image(data, std::move(bytes));
  return 0;
}
