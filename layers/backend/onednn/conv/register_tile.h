// SPDX-License-Identifier: Apache-2.0
//
// The inner kernel of the float32 products of panel_product.h and outer_product.h. Private to layers/backend/onednn.
#pragma once

#include <cstdint>

#include "layers/backend/onednn/lanes.h"

namespace convoy {

/// Sets the tile c [rows, vectors * width] to a b for a [rows, depth] and b [depth, vectors * width], or adds it where
/// `add`; its sums stay in registers, each in the order of depth. Element (r, k) of a lies at r * a_row + k * a_column;
/// rows of b and c are b_step and c_step apart. Rows of b are brought to the cache `level` `ahead` rows before their
/// use; 0: not at all. `add`, `ahead` and steps that are constants cost nothing.
template <int rows, int vectors, class Floats, CacheLevel level = CacheLevel::kFirst>
CONVOY_INLINE void multiply_tile(std::int64_t depth, const float* a, std::int64_t a_row, std::int64_t a_column,
                                 const float* b, std::int64_t b_step, std::int64_t ahead, bool add, float* c,
                                 std::int64_t c_step) {
  constexpr int width = kWidth<Floats>;
  Floats sums[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[r][v] = Floats{};
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    if (ahead > 0) prefetch<Access::kRead, level>(b + (k + ahead) * b_step, vectors * width);
    Floats row[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) load(b + k * b_step + v * width, row[v]);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const float factor = a[r * a_row + k * a_column];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] += factor * row[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* to = c + r * c_step + v * width;
      if (add) {
        Floats before;
        load(to, before);
        sums[r][v] = before + sums[r][v];
      }
      store(sums[r][v], to);
    }
  }
}

}  // namespace convoy
