// SPDX-License-Identifier: Apache-2.0
#include "io/images/exif.h"

#include <cstddef>
#include <string_view>

namespace convoy {

namespace {

constexpr std::string_view kHead("Exif\0\0", 6);
constexpr std::uint64_t kOrientationTag = 0x0112, kShortType = 3;
constexpr std::size_t kEntryBytes = 12;

// Numbers of a TIFF block, in its byte order; 0 beyond its end, which stands for nothing anywhere here.
struct Tiff {
  std::span<const std::uint8_t> bytes;
  bool big_endian;

  [[nodiscard]] std::uint64_t number(std::uint64_t at, std::size_t size) const {
    if (at + size > bytes.size()) return 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value = value << 8 | bytes[at + (big_endian ? i : size - 1 - i)];
    return value;
  }
};

}  // namespace

int exif_orientation(std::span<const std::uint8_t> marker) {
  if (marker.size() < kHead.size() + 8) return 1;
  if (std::string_view(reinterpret_cast<const char*>(marker.data()), kHead.size()) != kHead) return 1;
  const Tiff tiff{marker.subspan(kHead.size()), marker[kHead.size()] == 'M'};
  if (tiff.number(2, 2) != 42) return 1;
  const std::uint64_t folder = tiff.number(4, 4);  // of the main image's tags
  const std::uint64_t entries = tiff.number(folder, 2);
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::uint64_t entry = folder + 2 + i * kEntryBytes;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const std::uint64_t value = tiff.number(entry + 8, 2);
    return tiff.number(entry + 2, 2) == kShortType && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace convoy
