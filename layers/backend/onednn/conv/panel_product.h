// SPDX-License-Identifier: Apache-2.0
//
// Small float32 matrix products whose right side was put into panels beforehand, for operands that lie in a core's
// second-level cache: the inner kernel of GotoBLAS and BLIS (Goto & van de Geijn, 2008; Van Zee & van de Geijn, 2015)
// without their packing. Private to layers/backend/onednn.
#pragma once

#include <algorithm>
#include <cstdint>

namespace convoy {

/// A multiple of the rows that panel_product() takes at a time at best: all of them, or half for narrow panels.
constexpr std::int64_t kPanelRows = 12;
/// The columns of a panel: kWidePanel for the 32 registers of AVX-512, or kNarrowPanel; the last one of a matrix has
/// what is left.
constexpr std::int64_t kWidePanel = 32, kNarrowPanel = 16;
[[nodiscard]] std::int64_t panel_columns();

/// Where (row, column) of a matrix [rows, columns] lies in its panels: panel after panel, each row by row.
constexpr std::int64_t panel_offset(std::int64_t rows, std::int64_t columns, std::int64_t panel, std::int64_t row,
                                    std::int64_t column) {
  const std::int64_t first = column / panel * panel;
  return first * rows + row * std::min(panel, columns - first) + (column - first);
}

/// Sets c [rows, columns] to a b, for a [rows, depth] and b [depth, columns] in panels of panel_columns(). Rows of a
/// and c are a_step and c_step apart; columns: whole vectors of kLanes. Each element is the sum over depth in its
/// order, whatever the number of rows.
void panel_product(std::int64_t rows, std::int64_t depth, std::int64_t columns, const float* a, std::int64_t a_step,
                   const float* b, float* c, std::int64_t c_step, std::int64_t panel = panel_columns());

}  // namespace convoy
