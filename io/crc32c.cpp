// SPDX-License-Identifier: Apache-2.0
//
// The byte-at-a-time form with one table of 256 words: what it reads is a few hundred bytes a step. The table is built
// at compile time from the reflected polynomial 0x82F63B78, so the file relies on nothing but its header.
#include "io/crc32c.h"

#include <array>

namespace convoy {

namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78u : 0u);
    table[byte] = value;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
  std::uint32_t value = ~before;
  for (const char c : bytes) value = (value >> 8) ^ kTable[(value ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~value;
}

}  // namespace convoy
