// SPDX-License-Identifier: Apache-2.0
//
// Sixteen lanes side by side, in vectors of the compiler's. Words are taken in the machine's little-endian
// order: exchanging the bytes of a word is multiplying it by 256 modulo 65535 (RFC 1071), which is done once, at the
// end. Invariant: like HDF5, a sum of which any word is not zero is never 0 but 65535.
#include "io/hdf5/fletcher32.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace convoy {

namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

constexpr std::uint64_t kModulus = 65535;
constexpr std::size_t kLanes = 16;
constexpr std::size_t kRowBytes = kLanes * 2;
constexpr std::size_t kRows = 360;  // 65535 * 360 * 361 / 2 is the most that a lane's 32 bits hold

struct Sums {
  std::uint64_t words = 0;    // sum of the words so far
  std::uint64_t of_sums = 0;  // sum of that sum after each word

  // `count` words whose sum is `a`, and whose sum of sums is `b`, follow.
  void append(std::uint64_t count, std::uint64_t a, std::uint64_t b) {
    of_sums = reduced(of_sums + words * count + b);
    words = reduced(words + a);
  }
  // Into 0 to 65535, where 0 stays for 0 alone.
  static std::uint64_t reduced(std::uint64_t sum) { return sum == 0 ? 0 : (sum - 1) % kModulus + 1; }
};

// Each lane's word i of `rows` counts rows - i times in its sum of sums; in that of all words, 16 times as often less
// the lane's number.
void append_rows(Sums& sums, const std::byte* bytes, std::size_t rows) {
  using Words [[gnu::vector_size(kRowBytes)]] = std::uint16_t;
  using Lanes [[gnu::vector_size(2 * kRowBytes)]] = std::uint32_t;
  Lanes words{};
  Lanes of_sums{};
  for (std::size_t row = 0; row < rows; ++row) {
    Words next;
    std::memcpy(&next, bytes + row * kRowBytes, kRowBytes);
    words += __builtin_convertvector(next, Lanes);
    of_sums += words;
  }
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    a += words[lane];
    b += std::uint64_t{kLanes} * of_sums[lane] - lane * words[lane];
  }
  sums.append(rows * kLanes, a, b);
}

}  // namespace

std::uint32_t fletcher32(std::span<const std::byte> bytes) {
  Sums sums;
  while (bytes.size() >= kRowBytes) {
    const std::size_t rows = std::min(kRows, bytes.size() / kRowBytes);
    append_rows(sums, bytes.data(), rows);
    bytes = bytes.subspan(rows * kRowBytes);
  }
  while (!bytes.empty()) {
    std::uint16_t word = 0;
    const std::size_t size = std::min(sizeof word, bytes.size());
    std::memcpy(&word, bytes.data(), size);
    sums.append(1, word, word);
    bytes = bytes.subspan(size);
  }
  const auto swapped = [](std::uint64_t sum) { return static_cast<std::uint32_t>(Sums::reduced(sum * 256)); };
  return swapped(sums.of_sums) << 16 | swapped(sums.words);
}

}  // namespace convoy
