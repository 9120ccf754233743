// SPDX-License-Identifier: Apache-2.0
//
// A number of bytes for people: "1.2 GB". Decimal, as disks are sold.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace convoy {

inline std::string format_bytes(std::uintmax_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (bytes < 10'000) return fmt::format("{} bytes", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", size / 1e3);
  return bytes < 10'000'000'000 ? fmt::format("{:.1f} MB", size / 1e6) : fmt::format("{:.1f} GB", size / 1e9);
}

}  // namespace convoy
