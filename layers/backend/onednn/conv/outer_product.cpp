// SPDX-License-Identifier: Apache-2.0
//
// The rows of c go in parts, so that the sums of each fit the registers: 6 x 16 values in 12 of the 16 that AVX2 has,
// in 24 of NEON's 32, 8 x 32 in 16 of the 32 of AVX-512. Two vectors of columns there, so that an element of a is read
// once for two multiplications: a core of Zen 4 does 118 GFLOP/s, and 106 with 16 x 16.
#include "layers/backend/onednn/conv/outer_product.h"

#include <algorithm>

#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/vectorized.h"

namespace convoy {

namespace {

// The rows of c from `first` on.
template <int rows, int columns, class Floats>
CONVOY_INLINE void multiply_rows(std::int64_t first, std::int64_t depth, const float* a, const float* b,
                                 const TileOutput& out) {
  constexpr int width = kWidth<Floats>;
  const std::int64_t b_vector = width == kLanes ? depth * kLanes : width;  // the next panel, or within one
  multiply_tile<rows, columns / width, Floats>(depth, {a + first, 1, kLanes, b, kLanes, b_vector}, 0, out.at(first, 0));
}

}  // namespace

// Some rows at a time: a panel of all of them is on more pages than the CPU knows the addresses of.
void column_panels(const float* const* rows, std::int64_t count, std::int64_t first, std::int64_t last, float* panels) {
  constexpr std::int64_t kRows = 8;
  vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
    for (std::int64_t row = 0; row < count; row += kRows) {
      const std::int64_t end = std::min(row + kRows, count);
      for (std::int64_t column = first; column < last; column += kLanes) {
        float* to = panels + (column - first) * count + row * kLanes;
        for (std::int64_t k = row; k < end; ++k, to += kLanes) {
          for (std::int64_t lane = 0; lane < kLanes; lane += width) {
            Vector<float, width> values;
            load(rows[k] + column + lane, values);
            store(values, to + lane);
          }
        }
      }
    }
  });
}

void outer_product(std::int64_t depth, const float* a, const float* b, std::int64_t columns, const TileOutput& out) {
  vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
    using Floats = Vector<float, width>;
    if constexpr (width == kLanes) {
      if (columns == kOuterColumns) {
        multiply_rows<8, kOuterColumns, Floats>(0, depth, a, b, out);
        multiply_rows<8, kOuterColumns, Floats>(8, depth, a, b, out);
      } else {
        multiply_rows<kLanes, kLanes, Floats>(0, depth, a, b, out);
      }
    } else {
      for (std::int64_t column = 0; column < columns; column += kLanes) {
        const float* panel = b + column * depth;
        const TileOutput part = out.at(0, column);
        multiply_rows<6, kLanes, Floats>(0, depth, a, panel, part);
        multiply_rows<5, kLanes, Floats>(6, depth, a, panel, part);
        multiply_rows<5, kLanes, Floats>(11, depth, a, panel, part);
      }
    }
  });
}

}  // namespace convoy
