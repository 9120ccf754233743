// SPDX-License-Identifier: Apache-2.0
//
// The inner kernel of the float32 products of panel_product.h and outer_product.h. Private to layers/backend/onednn.
#pragma once

#include <cstdint>

#include "layers/backend/onednn/lanes.h"

namespace convoy {

/// Element (r, k) of a lies at a[r * a_row + k * a_column]. Rows of b are b_row apart, and their vectors b_vector.
struct TileOperands {
  const float* a;
  std::int64_t a_row, a_column;
  const float* b;
  std::int64_t b_row, b_vector;
};

/// Where the tile goes, whose rows are c_row apart; it is added to what is there where `add`. next: the tile that the
/// next product writes, to be brought to the first-level cache meanwhile, or null.
struct TileOutput {
  float* c;
  std::int64_t c_row;
  bool add = false;
  const float* next = nullptr;

  /// The part from this row and column on, in both tiles.
  [[nodiscard]] CONVOY_INLINE TileOutput at(std::int64_t row, std::int64_t column) const {
    const std::int64_t offset = row * c_row + column;
    return {c + offset, c_row, add, next == nullptr ? nullptr : next + offset};
  }
};

/// Sets or adds the tile [rows, vectors * width] a b for a [rows, depth] and b [depth, vectors * width]; its sums stay
/// in registers, each in the order of depth. Rows of b, whose vectors must then be neighbours, are brought to the cache
/// `level` `ahead` rows before their use; 0: not at all. What is constant of the arguments costs nothing.
template <int rows, int vectors, class Floats, CacheLevel level = CacheLevel::kFirst>
CONVOY_INLINE void multiply_tile(std::int64_t depth, const TileOperands& in, std::int64_t ahead,
                                 const TileOutput& out) {
  constexpr int width = kWidth<Floats>;
  Floats sums[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[r][v] = Floats{};
  }
  const auto add_products = [&](std::int64_t k) CONVOY_INLINE_LAMBDA {
    if (ahead > 0) prefetch<Access::kRead, level>(in.b + (k + ahead) * in.b_row, vectors * width);
    Floats row[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) load(in.b + k * in.b_row + v * in.b_vector, row[v]);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const float factor = in.a[r * in.a_row + k * in.a_column];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] += factor * row[v];
    }
  };
  std::int64_t k = 0;
  if (out.next != nullptr) {
    for (const std::int64_t last = depth < rows ? depth : rows; k < last; ++k) {
      prefetch<Access::kWrite, CacheLevel::kFirst>(out.next + k * out.c_row, vectors * width);
      add_products(k);
    }
  }
  for (; k < depth; ++k) add_products(k);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* to = out.c + r * out.c_row + v * width;
      if (out.add) {
        Floats before;
        load(to, before);
        sums[r][v] = before + sums[r][v];
      }
      store(sums[r][v], to);
    }
  }
}

}  // namespace convoy
