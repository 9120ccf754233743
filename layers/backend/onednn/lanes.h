// SPDX-License-Identifier: Apache-2.0
//
// Vectors of float for kernels whose loops the compiler does not vectorise by itself: as wide as a register of the
// instruction set (vectorized.h), since of wider ones GCC keeps nothing in registers. They go by reference: how they
// are passed otherwise depends on the instruction set. Private to layers/backend/onednn.
#pragma once

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "layers/backend/onednn/bfloat16.h"
#include "layers/base/cpu_features.h"

#define CONVOY_INLINE inline __attribute__((always_inline))  // part of what is compiled for several instruction sets
#define CONVOY_INLINE_LAMBDA __attribute__((always_inline))  // the same, behind the parameters of a lambda

namespace convoy {

template <class T, int count>
struct VectorOf {
  using Type [[gnu::vector_size(count * sizeof(T))]] = T;
};
template <class T, int count>
using Vector = typename VectorOf<T, count>::Type;
template <class Floats>
constexpr int kWidth = sizeof(Floats) / sizeof(float);

/// The widest vector, and the multiple of channels that memory formats are made of.
constexpr std::int64_t kLanes = 16;
using Lanes = Vector<float, kLanes>;
using LaneWords = Vector<std::uint32_t, kLanes>;
using LaneHalves = Vector<std::uint16_t, kLanes>;

// Below, Floats is a Vector of float of any width.

template <class Floats>
CONVOY_INLINE void load(const float* from, Floats& to) {
  std::memcpy(&to, from, sizeof(to));
}
template <class Floats>
CONVOY_INLINE void store(const Floats& from, float* to) {
  std::memcpy(to, &from, sizeof(from));
}

/// Past the caches, for what is not read soon: it need not be fetched to be overwritten. to: aligned to 64 bytes.
/// end_streams() comes before another thread may read it. With a NativeBFloat16 by one AVX-512 store.
template <class Floats>
CONVOY_INLINE void stream(BFloat16, const Floats& from, float* to) {
#ifdef __SSE__
  if constexpr (kWidth<Floats> == 4) {
    _mm_stream_ps(to, from);
  } else if constexpr (kWidth<Floats> == 8) {
    _mm_stream_ps(to, __builtin_shufflevector(from, from, 0, 1, 2, 3));
    _mm_stream_ps(to + 4, __builtin_shufflevector(from, from, 4, 5, 6, 7));
  } else {
    _mm_stream_ps(to, __builtin_shufflevector(from, from, 0, 1, 2, 3));
    _mm_stream_ps(to + 4, __builtin_shufflevector(from, from, 4, 5, 6, 7));
    _mm_stream_ps(to + 8, __builtin_shufflevector(from, from, 8, 9, 10, 11));
    _mm_stream_ps(to + 12, __builtin_shufflevector(from, from, 12, 13, 14, 15));
  }
#else
  store(from, to);
#endif
}

inline void end_streams() {
#ifdef __SSE__
  _mm_sfence();
#endif
}

enum class Access : int { kRead, kWrite };
enum class CacheLevel : int { kSecond = 2, kFirst = 3 };  // as __builtin_prefetch() counts them

/// Has the lines of [from, from + count) brought to a cache, to be read or overwritten.
template <Access access, CacheLevel level, class T>
CONVOY_INLINE void prefetch(const T* from, std::int64_t count) {
  constexpr std::int64_t line = 64 / std::int64_t{sizeof(T)};
  for (std::int64_t i = 0; i < count; i += line) {
    __builtin_prefetch(from + i, static_cast<int>(access), static_cast<int>(level));
  }
}

template <class Floats>
CONVOY_INLINE void load(const BFloat16* from, Floats& to) {
  using Words = Vector<std::uint32_t, kWidth<Floats>>;
  Vector<std::uint16_t, kWidth<Floats>> halves;
  std::memcpy(&halves, from, sizeof(halves));
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&to, &words, sizeof(to));
}

/// Rounded to nearest even; a NaN stays one.
template <class Floats>
CONVOY_INLINE void store(const Floats& from, BFloat16* to) {
  using Words = Vector<std::uint32_t, kWidth<Floats>>;
  using Halves = Vector<std::uint16_t, kWidth<Floats>>;
  Words words;
  std::memcpy(&words, &from, sizeof(words));
  const Words rounded = (words + 0x7fffU + ((words >> 16) & 1U)) >> 16, quiet = (words >> 16) | 0x40U;
  const Words nan = (words & 0x7fffffffU) > 0x7f800000U;  // all bits of a lane, or none
  const Halves halves = __builtin_convertvector((quiet & nan) | (rounded & ~nan), Halves);
  std::memcpy(static_cast<void*>(to), &halves, sizeof(halves));
}

template <int... lane>
CONVOY_INLINE void pair_lanes(const LaneHalves& even, const LaneHalves& odd, LaneWords& words,
                              std::integer_sequence<int, lane...>) {
  const auto halves = __builtin_shufflevector(even, odd, (lane / 2 + lane % 2 * int{kLanes})...);
  std::memcpy(&words, &halves, sizeof(words));
}

/// Words of a lane of `even` in the lower half and that of `odd` in the upper one.
CONVOY_INLINE void pair_lanes(const LaneHalves& even, const LaneHalves& odd, LaneWords& words) {
  pair_lanes(even, odd, words, std::make_integer_sequence<int, 2 * kLanes>());
}

/// Adds a.even * b.even + a.odd * b.odd to the sum in each lane, for words of two bfloat16, `a` the same in all lanes.
/// With a NativeBFloat16 by AVX512-BF16, which takes numbers below 2^-126 for 0.
CONVOY_INLINE void add_pair_products(BFloat16, const std::uint32_t& a, const LaneWords& b, Lanes& sum) {
  const LaneWords upper = b & 0xffff0000U, lower = b << 16;
  Lanes odd, even;
  std::memcpy(&odd, &upper, sizeof(odd));
  std::memcpy(&even, &lower, sizeof(even));
  sum += std::bit_cast<float>(a & 0xffff0000U) * odd + std::bit_cast<float>(a << 16) * even;
}

/// Sets the bits of those lanes that, rounded to bfloat16, are above 0 or NaN.
CONVOY_INLINE void store_positive(BFloat16, const Lanes& from, std::uint16_t* bits) {
  unsigned all = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) all |= (from[lane] <= 0.0F ? 0U : 1U) << lane;
  *bits = static_cast<std::uint16_t>(all);
}

/// The lanes whose bits are set, and 0 in the others.
CONVOY_INLINE void load(const BFloat16* from, std::uint16_t bits, Lanes& to) {
  Lanes all{};
  load(from, all);
  to = Lanes{};
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((bits >> lane & 1U) != 0) to[lane] = all[lane];
  }
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(CONVOY_SANITIZED)
constexpr bool kHasNativeBFloat16 = true;
/// A BFloat16 that AVX512-BF16 converts: four times as fast as shifts and sums, with the same results but for numbers
/// below 2^-126, which become 0. Only in functions of CONVOY_NATIVE_BF16, where native_bf16().
struct NativeBFloat16 : BFloat16 {};
#define CONVOY_NATIVE_BF16 __attribute__((target("arch=x86-64-v4"), noinline))

// LaneHalves as they lie in memory.
using StoredHalves = std::uint16_t __attribute__((vector_size(sizeof(LaneHalves)), may_alias, aligned(2)));

CONVOY_INLINE void load(const NativeBFloat16* from, Lanes& to) {
  LaneWords words;
  asm("vpmovzxwd %1, %0" : "=v"(words) : "m"(*reinterpret_cast<const StoredHalves*>(from)));
  words <<= 16;
  std::memcpy(&to, &words, sizeof(to));
}
CONVOY_INLINE void store(const Lanes& from, NativeBFloat16* to) {
  LaneHalves halves;
  asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(from));
  std::memcpy(static_cast<void*>(to), &halves, sizeof(halves));
}
CONVOY_INLINE void stream(NativeBFloat16, const Lanes& from, float* to) {
  asm("vmovntps %1, %0" : "=m"(*reinterpret_cast<Lanes*>(to)) : "v"(from));
}
CONVOY_INLINE void add_pair_products(NativeBFloat16, const std::uint32_t& a, const LaneWords& b, Lanes& sum) {
  const LaneWords pair = LaneWords{} + a;
  Lanes total = sum;
  asm("vdpbf16ps %2, %1, %0" : "+v"(total) : "v"(b), "v"(pair));
  sum = total;
}
CONVOY_INLINE void store_positive(NativeBFloat16, const Lanes& from, std::uint16_t* bits) {
  const Lanes smallest = Lanes{} + 0x1p-126F;
  asm("vcmpnltps %2, %1, %0" : "=Yk"(*bits) : "v"(from), "v"(smallest));
}
CONVOY_INLINE void load(const NativeBFloat16* from, std::uint16_t bits, Lanes& to) {
  LaneWords words;
  asm("vpmovzxwd %1, %0 %{%2%}%{z%}" : "=v"(words) : "m"(*reinterpret_cast<const StoredHalves*>(from)), "Yk"(bits));
  words <<= 16;
  std::memcpy(&to, &words, sizeof(to));
}
#else  // clang looks at the operands of assembly before it inlines, sanitizers do not see what it reads
constexpr bool kHasNativeBFloat16 = false;
using NativeBFloat16 = BFloat16;
#define CONVOY_NATIVE_BF16
#endif

/// Whether functions of CONVOY_NATIVE_BF16 are there and the CPU has what they need.
[[nodiscard]] inline bool native_bf16() { return kHasNativeBFloat16 && cpu_features().avx512_bf16; }

// A step of transpose(): exchanges the lanes of a that have this bit in their number with those of b that have not.
template <int bit, class Floats, int... lane>
CONVOY_INLINE void exchange_lanes(Floats& a, Floats& b, std::integer_sequence<int, lane...>) {
  constexpr int width = kWidth<Floats>;
  const Floats low = __builtin_shufflevector(a, b, ((lane & bit) == 0 ? lane : width + lane - bit)...);
  b = __builtin_shufflevector(a, b, ((lane & bit) == 0 ? lane + bit : width + lane)...);
  a = low;
}

// The same of all pairs of `count` rows whose numbers differ in it; nothing where a row has no such bit.
template <int bit, int count, class Floats>
CONVOY_INLINE void exchange_rows(Floats* rows) {
  if constexpr (bit < kWidth<Floats>) {
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) {
      if ((i & bit) == 0)
        exchange_lanes<bit>(rows[i], rows[i + bit], std::make_integer_sequence<int, kWidth<Floats>>());
    }
  }
}

/// Sets `to` [kLanes, kLanes] to the transpose of `from`, whose rows are `step` apart, by squares of a vector's width.
template <class Floats>
CONVOY_INLINE void transpose(const float* from, std::int64_t step, float* to) {
  constexpr int width = kWidth<Floats>;
  for (int row = 0; row < kLanes; row += width) {
    for (int column = 0; column < kLanes; column += width) {
      Floats rows[width];
      for (int i = 0; i < width; ++i) load(from + (row + i) * step + column, rows[i]);
      exchange_rows<1, width>(rows);
      exchange_rows<2, width>(rows);
      exchange_rows<4, width>(rows);
      exchange_rows<8, width>(rows);
      for (int i = 0; i < width; ++i) store(rows[i], to + (column + i) * kLanes + row);
    }
  }
}

}  // namespace convoy
