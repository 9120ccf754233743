// SPDX-License-Identifier: Apache-2.0
//
// The rows of c go in three parts, so that the sums of each fit the registers: 6 x 16 values in 12 of the 16 that AVX2
// has, in 24 of NEON's 32. With AVX-512 they go together, in 16 of 32.
#include "layers/backend/onednn/conv/outer_product.h"

#include <algorithm>

#include "layers/backend/onednn/conv/register_tile.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/vectorized.h"

namespace convoy {

namespace {

template <int rows, class Floats>
CONVOY_INLINE void add_products(std::int64_t depth, const float* a, const float* b, bool add, float* c,
                                std::int64_t c_step) {
  multiply_tile<rows, kLanes / kWidth<Floats>, Floats>(depth, a, 1, kLanes, b, kLanes, 0, add, c, c_step);
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

void outer_product(std::int64_t depth, const float* a, const float* b, bool add, float* c, std::int64_t c_step) {
  vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
    using Floats = Vector<float, width>;
    if constexpr (width == kLanes) {
      add_products<kLanes, Floats>(depth, a, b, add, c, c_step);
    } else {
      add_products<6, Floats>(depth, a, b, add, c, c_step);
      add_products<5, Floats>(depth, a + 6, b, add, c + 6 * c_step, c_step);
      add_products<5, Floats>(depth, a + 11, b, add, c + 11 * c_step, c_step);
    }
  });
}

}  // namespace convoy
