// SPDX-License-Identifier: Apache-2.0
//
// Checksums against a plain sum over words, on any number of threads; every single bit counts.
#include "layers/backend/checksum.h"

#include <doctest/doctest.h>
#include <omp.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

std::vector<std::uint32_t> random_words(std::size_t count) {
  std::vector<std::uint32_t> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = static_cast<std::uint32_t>(random_bits(5, i));
  return words;
}

// As the header defines it, in arithmetic of 128 bits.
std::uint64_t plain_sum(const std::vector<std::uint32_t>& words, std::uint64_t first) {
  unsigned __int128 sum = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto weight = static_cast<std::uint32_t>((first + i) * 2 * 0x9e3779b1ULL + 1);
    sum += static_cast<unsigned __int128>(words[i]) * weight;
  }
  return static_cast<std::uint64_t>(sum);
}

std::uint64_t sum_of(const std::vector<std::uint32_t>& words, std::int64_t first = 0) {
  return memory_checksum(words.data(), 4 * words.size(), first);
}

}  // namespace

TEST_CASE("a checksum is the weighted sum of words, on any number of threads, and parts add up") {
  const std::vector<std::uint32_t> words = random_words(300'007);
  const std::uint64_t expected = plain_sum(words, 0);
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    CHECK(sum_of(words) == expected);
  }
  omp_set_num_threads(before);
  constexpr std::int64_t kCut = 131'071;
  CHECK(memory_checksum(words.data(), 4 * kCut) +
            memory_checksum(words.data() + kCut, 4 * (words.size() - kCut), kCut) ==
        expected);
  CHECK(sum_of(words, 1) == plain_sum(words, 1));
}

TEST_CASE("any bit that flips, in any word or in the odd bytes at the end, changes a checksum") {
  std::vector<std::uint32_t> words = random_words(67);
  const std::size_t bytes = 4 * words.size() - 1;  // the last word is not whole
  const std::uint64_t before = memory_checksum(words.data(), bytes);
  auto* byte = reinterpret_cast<std::uint8_t*>(words.data());
  for (std::size_t bit = 0; bit < 8 * bytes; ++bit) {
    byte[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    CHECK(memory_checksum(words.data(), bytes) != before);
    byte[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
  }
  byte[bytes] ^= 1;  // beyond the end
  CHECK(memory_checksum(words.data(), bytes) == before);
  std::swap(words[3], words[40]);
  CHECK(memory_checksum(words.data(), bytes) != before);
}

TEST_CASE("a backend's checksum is that of its bits, by whichever way") {
  OnednnBackend backend(2, DType::kF32);
  const std::vector<std::uint32_t> words = random_words(1000);
  const Tensor x = backend.tensor({1000}, DType::kF32);
  backend.copy_from_host(words.data(), x);
  CHECK(backend.checksum(x, 7) == plain_sum(words, 7));
  CHECK(backend.Backend::checksum(x, 7) == plain_sum(words, 7));  // by a copy to the host
}

}  // namespace convoy
