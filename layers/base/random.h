// SPDX-License-Identifier: Apache-2.0
//
// Random numbers as a pure function of a key and a counter (SplitMix64's finaliser, Steele et al. 2014), so that any
// rank can compute any of them in any order. Not for cryptography.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace convoy {

#ifdef __CUDACC__
#define CONVOY_HOST_DEVICE __host__ __device__
#else
#define CONVOY_HOST_DEVICE
#endif

/// A bijective mix of 64 bits.
CONVOY_HOST_DEVICE inline std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// A key from a seed and a name (FNV-1a over the name, then mixed).
inline std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix64(hash ^ mix64(seed));
}

CONVOY_HOST_DEVICE inline std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
  return mix64(key ^ mix64(counter));
}

/// The 32-bit words of SplitMix64's sequence from `key`, the lower half of each number first.
CONVOY_HOST_DEVICE inline std::uint32_t random_word(std::uint64_t key, std::uint64_t index) {
  const std::uint64_t bits = mix64(key + index / 2 * 0x9e3779b97f4a7c15ULL);
  return static_cast<std::uint32_t>(index % 2 == 0 ? bits : bits >> 32);
}

/// Uniform on [0, 1), 53 bits.
inline double random_uniform(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(random_bits(key, counter) >> 11) * 0x1p-53;
}

/// Standard normal (Box & Muller 1958, one of the pair).
inline double random_normal(std::uint64_t key, std::uint64_t counter) {
  const double u = 1.0 - random_uniform(key, 2 * counter);  // (0, 1]
  const double v = random_uniform(key, 2 * counter + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace convoy
