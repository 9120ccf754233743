// SPDX-License-Identifier: Apache-2.0
//
// A kernel keeps kPairRows x 2 vectors of sums in registers: all its loops are unrolled by request, since compilers
// leave loops around assembly alone. Where the instruction is missing the same sums are taken in float32.
#include "layers/backend/onednn/conv/pair_product.h"

#include <algorithm>
#include <cstring>

namespace convoy {

namespace {

// Of vectors * kLanes columns.
template <int vectors, class Element>
CONVOY_INLINE void products(std::int64_t pairs, const std::uint32_t* a, std::int64_t a_step, const std::uint32_t* b,
                            std::int64_t b_step, bool add, float* c, std::int64_t c_step) {
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
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) std::memcpy(&row[v], b + k * b_step + v * kLanes, sizeof(row[v]));
#pragma GCC unroll 8
    for (int r = 0; r < kPairRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) add_pair_products(Element(), a[k * a_step + r], row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kPairRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) store(sums[r][v], c + r * c_step + v * kLanes);
  }
}

template <int vectors>
CONVOY_VECTORIZED void kernel(std::int64_t pairs, const std::uint32_t* a, std::int64_t a_step, const std::uint32_t* b,
                              std::int64_t b_step, bool add, float* c, std::int64_t c_step) {
  products<vectors, BFloat16>(pairs, a, a_step, b, b_step, add, c, c_step);
}

template <int vectors>
CONVOY_NATIVE_BF16 void kernel_bf16(std::int64_t pairs, const std::uint32_t* a, std::int64_t a_step,
                                    const std::uint32_t* b, std::int64_t b_step, bool add, float* c,
                                    std::int64_t c_step) {
  products<vectors, NativeBFloat16>(pairs, a, a_step, b, b_step, add, c, c_step);
}

}  // namespace

// A cache line of every row at a time: panel by panel, what is written lies in few places.
CONVOY_VECTORIZED void pair_panels(const BFloat16* const* rows, std::int64_t pairs, std::int64_t first,
                                   std::int64_t last, std::int64_t width, std::uint32_t* panels) {
  constexpr std::int64_t line = kPairColumns;
  for (std::int64_t column = first; column < last; column += line) {
    const std::int64_t columns = std::min(line, last - column), step = std::min(width, columns);
    // From a vector of a row to the next: in the same panel, or in the one behind it.
    const std::int64_t next = width == kLanes ? kLanes * pairs : kLanes;
    std::uint32_t* to = panels + (column - first) * pairs;
    for (std::int64_t k = 0; k < pairs; ++k, to += step) {
      const BFloat16 *even = rows[2 * k] + column, *odd = rows[2 * k + 1] + column;
      for (std::int64_t c = 0; c < columns; c += kLanes) {
        LaneHalves lower, upper;
        LaneWords words;
        std::memcpy(&lower, even + c, sizeof(lower));
        std::memcpy(&upper, odd + c, sizeof(upper));
        pair_lanes(lower, upper, words);
        std::memcpy(to + c / kLanes * next, &words, sizeof(words));
      }
    }
  }
}

void pair_product(std::int64_t pairs, const std::uint32_t* a, std::int64_t a_step, const std::uint32_t* b,
                  std::int64_t columns, bool add, float* c, std::int64_t c_step) {
  if (native_bf16()) {
    (columns == kLanes ? kernel_bf16<1> : kernel_bf16<2>)(pairs, a, a_step, b, columns, add, c, c_step);
  } else {
    (columns == kLanes ? kernel<1> : kernel<2>)(pairs, a, a_step, b, columns, add, c, c_step);
  }
}

}  // namespace convoy
