// SPDX-License-Identifier: Apache-2.0
//
// A kernel keeps `rows` × `columns` sums in registers: 12 × 32 in 24 of the 32 that AVX-512 has, with two for a row of
// the panel; 6 × 16 in 12 of 16 where vectors are of 8 values, in 24 of 32 where they are of 4 (Arm).
#include "layers/backend/onednn/conv/panel_product.h"

#include <array>
#include <cstddef>
#include <utility>

#include "layers/backend/onednn/conv/register_tile.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/vectorized.h"
#include "layers/base/cpu_features.h"

namespace convoy {

namespace {

using Kernel = void (*)(std::int64_t depth, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step,
                        float* c, std::int64_t c_step);

// Rows of a panel that are brought from the last-level cache ahead of their use by narrow kernels. On Zen 3 the CPU
// does not by itself: of 256 channels a product runs at 28 GFLOP/s without them, at 84 with them. Wide ones have the
// next panel brought to the second-level cache: weights come from memory at the first of a layer's products.
constexpr std::int64_t kRowsAhead = 64;

template <int rows, int columns>
void kernel(std::int64_t depth, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step, float* c,
            std::int64_t c_step) {
  vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
    constexpr auto kLevel = width < kLanes ? CacheLevel::kFirst : CacheLevel::kSecond;
    const std::int64_t ahead = width < kLanes ? kRowsAhead : depth;
    multiply_tile<rows, columns / width, Vector<float, width>, kLevel>(depth, {a, a_step, 1, b, b_step, width}, ahead,
                                                                       {c, c_step});
  });
}

// Those for 1 to kPanelRows rows.
template <int columns, std::size_t... r>
constexpr std::array<Kernel, kPanelRows> kernels(std::index_sequence<r...>) {
  return {kernel<static_cast<int>(r) + 1, columns>...};
}

constexpr auto kOfNarrowPanels = kernels<kNarrowPanel>(std::make_index_sequence<kPanelRows>());
constexpr auto kOfWidePanels = kernels<kWidePanel>(std::make_index_sequence<kPanelRows>());

}  // namespace

std::int64_t panel_columns() { return kVectorizedForCpu && cpu_features().avx512 ? kWidePanel : kNarrowPanel; }

void panel_product(std::int64_t rows, std::int64_t depth, std::int64_t columns, const float* a, std::int64_t a_step,
                   const float* b, float* c, std::int64_t c_step, std::int64_t panel) {
  const std::int64_t most_rows = panel == kWidePanel ? kPanelRows : kPanelRows / 2;
  for (std::int64_t column = 0; column < columns; column += panel) {
    const std::int64_t width = std::min(panel, columns - column);
    const auto& of_width = width == kNarrowPanel ? kOfNarrowPanels : kOfWidePanels;
    for (std::int64_t row = 0; row < rows; row += most_rows) {
      const auto count = static_cast<std::size_t>(std::min(most_rows, rows - row));
      of_width[count - 1](depth, a + row * a_step, a_step, b + column * depth, width, c + row * c_step + column,
                          c_step);
    }
  }
}

}  // namespace convoy
