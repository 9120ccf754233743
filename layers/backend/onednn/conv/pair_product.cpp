// SPDX-License-Identifier: Apache-2.0
//
// A kernel keeps kPairRows x 2 vectors of sums in registers: all its loops are unrolled by request, since compilers
// leave loops around assembly alone. Where the instruction is missing the same sums are taken in float32. What is to be
// filled is filled in the same loop: it waits for the multiplications, and the CPU can load, shuffle and store
// meanwhile.
#include "layers/backend/onednn/conv/pair_product.h"

#include <cstring>

namespace convoy {

namespace {

constexpr std::int64_t kAhead = 64;  // columns, whose elements meanwhile come to the second-level cache

// Sets `words` and a panel's row `to`, vectors * kLanes words each, to pairs of the elements of two rows.
template <int vectors>
CONVOY_INLINE void pair_rows(const PairSource& from, std::int64_t pair, std::uint32_t* to, LaneWords* words) {
  const BFloat16 *even = from.rows[2 * pair] + from.column, *odd = from.rows[2 * pair + 1] + from.column;
  prefetch<Access::kRead, CacheLevel::kSecond>(even + kAhead, 1);
  prefetch<Access::kRead, CacheLevel::kSecond>(odd + kAhead, 1);
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) {
    LaneHalves lower, upper;
    std::memcpy(&lower, even + v * kLanes, sizeof(lower));
    std::memcpy(&upper, odd + v * kLanes, sizeof(upper));
    pair_lanes(lower, upper, words[v]);
    std::memcpy(to + v * kLanes, &words[v], sizeof(words[v]));
  }
}

// Of vectors * kLanes columns. fills: whether there are panels to set or rows to bring.
template <int vectors, bool fills, class Element>
CONVOY_INLINE void products(std::int64_t pairs, const std::uint32_t* a, std::uint32_t* b, bool add, float* c,
                            std::int64_t c_step, const PairFill& fill, Element) {
  const PairSource b_source = fill.b, next_a = fill.next_a, ahead = fill.ahead;
  std::uint32_t* next_panel = fill.next_a_panel;
  Lanes sums[kPairRows][vectors] = {};
  if (add) {
#pragma GCC unroll 8
    for (int r = 0; r < kPairRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) load(c + r * c_step + v * kLanes, sums[r][v]);
    }
  }
  for (std::int64_t k = 0; k < pairs; ++k) {
    LaneWords row[vectors];
    if (fills && ahead.rows != nullptr) {
      prefetch<Access::kRead, CacheLevel::kSecond>(ahead.rows[2 * k] + ahead.column, 1);
    }
    if (fills && next_a.rows != nullptr) {
      LaneWords words;
      pair_rows<1>(next_a, k, next_panel + k * kLanes, &words);
    }
    if (fills && b_source.rows != nullptr) {
      pair_rows<vectors>(b_source, k, b + k * vectors * kLanes, row);
    } else {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) std::memcpy(&row[v], b + (k * vectors + v) * kLanes, sizeof(row[v]));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kPairRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) add_pair_products(Element(), a[k * kLanes + r], row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kPairRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) store(sums[r][v], c + r * c_step + v * kLanes);
  }
}

using Kernel = void (*)(std::int64_t pairs, const std::uint32_t* a, std::uint32_t* b, bool add, float* c,
                        std::int64_t c_step, const PairFill& fill);

template <int vectors, bool fills>
CONVOY_VECTORIZED void kernel(std::int64_t pairs, const std::uint32_t* a, std::uint32_t* b, bool add, float* c,
                              std::int64_t c_step, const PairFill& fill) {
  products<vectors, fills>(pairs, a, b, add, c, c_step, fill, BFloat16());
}

template <int vectors, bool fills>
CONVOY_NATIVE_BF16 void native_kernel(std::int64_t pairs, const std::uint32_t* a, std::uint32_t* b, bool add, float* c,
                                      std::int64_t c_step, const PairFill& fill) {
  products<vectors, fills>(pairs, a, b, add, c, c_step, fill, NativeBFloat16());
}

template <int vectors>
Kernel kernel_for(bool fills) {
  if (native_bf16()) return fills ? native_kernel<vectors, true> : native_kernel<vectors, false>;
  return fills ? kernel<vectors, true> : kernel<vectors, false>;
}

}  // namespace

CONVOY_VECTORIZED void pair_panel(const PairSource& from, std::int64_t pairs, std::uint32_t* panel) {
  for (std::int64_t k = 0; k < pairs; ++k) {
    LaneWords words;
    pair_rows<1>(from, k, panel + k * kLanes, &words);
  }
}

void pair_product(std::int64_t pairs, const std::uint32_t* a, std::uint32_t* b, std::int64_t columns, bool add,
                  float* c, std::int64_t c_step, const PairFill& fill) {
  const bool fills = fill.b.rows != nullptr || fill.next_a.rows != nullptr || fill.ahead.rows != nullptr;
  const Kernel kernel = columns == kLanes ? kernel_for<1>(fills) : kernel_for<2>(fills);
  kernel(pairs, a, b, add, c, c_step, fill);
}

}  // namespace convoy
