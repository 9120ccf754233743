// SPDX-License-Identifier: Apache-2.0
//
// Small float32 matrix products whose right side was put into panels beforehand, for operands that lie in a core's
// second-level cache: the inner kernel of GotoBLAS and BLIS (Goto & van de Geijn, 2008; Van Zee & van de Geijn, 2015)
// without their packing. Private to layers/backend/onednn.
#pragma once

#include <algorithm>
#include <cstdint>

namespace convoy {

/// The rows that panel_product() takes at a time at best.
constexpr std::int64_t kPanelRows = 12;
/// The columns of a panel; the last one of a matrix has what is left.
constexpr std::int64_t kPanelColumns = 32;

/// Where (row, column) of a matrix [rows, columns] lies in its panels: panel after panel, each row by row.
constexpr std::int64_t panel_offset(std::int64_t rows, std::int64_t columns, std::int64_t row, std::int64_t column) {
  const std::int64_t first = column / kPanelColumns * kPanelColumns;
  return first * rows + row * std::min(kPanelColumns, columns - first) + (column - first);
}

/// Whether panel_product() takes 12 rows and 32 columns at a time, for the 32 registers of AVX-512, or 6 and 16.
[[nodiscard]] bool wide_panels();

/// Sets c [rows, columns] to a b, for a [rows, depth] and b [depth, columns] in panels. Rows of a and c are a_step and
/// c_step apart; columns: whole vectors of kLanes. Each element is the sum over depth in its order, whatever the number
/// of rows.
void panel_product(std::int64_t rows, std::int64_t depth, std::int64_t columns, const float* a, std::int64_t a_step,
                   const float* b, float* c, std::int64_t c_step, bool wide = wide_panels());

}  // namespace convoy
