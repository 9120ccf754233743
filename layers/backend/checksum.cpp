// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/checksum.h"

#include <atomic>
#include <cstring>

#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kChecksumGrain = 16384;  // words
// Of the weights of two neighbours: even, so that all are odd. 2^32 over the golden ratio spreads them over 32 bits.
constexpr std::uint32_t kWeightStep = 2 * 0x9e3779b1U;

CONVOY_VECTORIZED
std::uint64_t weighted_sum(const std::uint32_t* words, std::int64_t count, std::uint32_t first) {
  std::uint64_t sum = 0;
  std::uint32_t weight = first * kWeightStep + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += std::uint64_t{words[i]} * weight;
    weight += kWeightStep;
  }
  return sum;
}

}  // namespace

std::uint64_t memory_checksum(const void* data, std::size_t bytes, std::int64_t first) {
  const auto* words = static_cast<const std::uint32_t*>(data);
  const auto count = static_cast<std::int64_t>(bytes / sizeof(std::uint32_t));
  std::atomic<std::uint64_t> sum{0};
  parallel_ranges(count, kChecksumGrain, [&](std::int64_t begin, std::int64_t end, int) {
    sum += weighted_sum(words + begin, end - begin, static_cast<std::uint32_t>(first + begin));
  });
  if (const std::size_t rest = bytes % sizeof(std::uint32_t); rest > 0 && !rehearsing()) {
    std::uint32_t last = 0;
    std::memcpy(&last, words + count, rest);
    sum += weighted_sum(&last, 1, static_cast<std::uint32_t>(first + count));
  }
  return sum;
}

}  // namespace convoy
