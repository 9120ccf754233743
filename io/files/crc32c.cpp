// SPDX-License-Identifier: Apache-2.0
//
// Uses the CPU's instruction (SSE 4.2, or Arm's CRC32 extension) or, without it, eight tables for eight bytes at a time
// ("slicing by 8", Kounavis and Berry 2005): every byte of a checkpoint passes through here. The tables are built at
// compile time from the reflected polynomial 0x82F63B78. Invariant: both implementations return the same checksum.
#include "io/files/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#include "layers/base/cpu_features.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#endif

namespace convoy {

namespace {

using Table = std::array<std::uint32_t, 256>;

// tables[k][b]: the contribution of byte b when k more bytes follow.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t value = tables[k - 1][byte];
      tables[k][byte] = (value >> 8) ^ tables[0][value & 0xFF];
    }
  }
  return tables;
}

constexpr std::array<Table, 8> kTables = make_tables();
static_assert(std::endian::native == std::endian::little, "eight bytes are taken as one little-endian word");

std::uint64_t next_word(std::string_view& bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  bytes.remove_prefix(sizeof word);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t update_by_instruction(std::uint32_t value, std::string_view bytes) {
  std::uint64_t wide = value;
  while (bytes.size() >= sizeof(std::uint64_t)) wide = _mm_crc32_u64(wide, next_word(bytes));
  value = static_cast<std::uint32_t>(wide);
  for (const char c : bytes) value = _mm_crc32_u8(value, static_cast<unsigned char>(c));
  return value;
}

#elif defined(__aarch64__)
__attribute__((target("+crc"))) std::uint32_t update_by_instruction(std::uint32_t value, std::string_view bytes) {
  while (bytes.size() >= sizeof(std::uint64_t)) value = __crc32cd(value, next_word(bytes));
  for (const char c : bytes) value = __crc32cb(value, static_cast<unsigned char>(c));
  return value;
}
#else
std::uint32_t update_by_instruction(std::uint32_t value, std::string_view bytes) {
  return ~crc32c_by_tables(bytes, ~value);
}
#endif

constexpr std::uint32_t kPolynomial = 0x82F63B78U;
constexpr std::uint32_t kOne = 1U << 31;  // the polynomial 1: bits are reflected

// a * b modulo the polynomial.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// x^(8 * 2^k), by squaring.
constexpr std::array<std::uint32_t, 64> make_powers() {
  std::array<std::uint32_t, 64> powers{};
  powers[0] = kOne >> 8;
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = multiply(powers[k - 1], powers[k - 1]);
  return powers;
}
constexpr auto kPowers = make_powers();

}  // namespace

std::uint32_t crc32c_by_tables(std::string_view bytes, std::uint32_t before) {
  std::uint32_t value = ~before;
  while (bytes.size() >= sizeof(std::uint64_t)) {
    const std::uint64_t word = next_word(bytes) ^ value;
    value = 0;
    for (std::size_t k = 0; k < 8; ++k) value ^= kTables[7 - k][word >> (8 * k) & 0xFF];
  }
  for (const char c : bytes) value = (value >> 8) ^ kTables[0][(value ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~value;
}

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
  return cpu_features().crc32c ? ~update_by_instruction(~before, bytes) : crc32c_by_tables(bytes, before);
}

std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  for (std::size_t k = 0; second_bytes != 0; ++k, second_bytes >>= 1) {
    if ((second_bytes & 1) != 0) first = multiply(kPowers[k], first);
  }
  return first ^ second;
}

}  // namespace convoy
