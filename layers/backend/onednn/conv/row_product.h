// SPDX-License-Identifier: Apache-2.0
//
// Linear layers and 1x1 convolutions in float32 as own products: the weight is put into the panels of panel_product.h,
// then rows go through all of them, some at a time, so that these stay in a core's second-level cache. Private to
// layers/backend/onednn.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// A matrix [depth, columns] that lies row by row or, where `transposed`, column by column.
struct RowMatrix {
  const float* data;
  std::int64_t depth, columns;
  bool transposed;
};

/// Adds bias [columns] to each of the rows of y, which are y_step apart.
void add_bias(const float* bias, std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_step);

/// Columns of such a matrix in panels of panel_product.h, of whole vectors in both.
class RowPanels {
 public:
  /// Columns [first, last) of the matrix. The panels come from the backend's pool.
  RowPanels(Backend& backend, const RowMatrix& matrix, std::int64_t first, std::int64_t last);
  RowPanels(Backend& backend, const RowMatrix& matrix) : RowPanels(backend, matrix, 0, matrix.columns) {}
  /// Sets these columns of y [rows, columns] to x [rows, depth] times the matrix, and adds bias [columns] unless it is
  /// null, over all threads. The bits do not depend on their number, nor on which columns are together.
  void multiply(std::int64_t rows, const float* x, const float* bias, float* y) const;

 private:
  RowMatrix matrix_;
  std::int64_t first_, last_;
  Tensor panels_;
};

/// Whether there is one of these numbers of features.
[[nodiscard]] bool has_own_row_product(std::int64_t in, std::int64_t out);

/// Whether this CPU takes it in place of oneDNN's.
[[nodiscard]] bool by_own_rows(const OnednnState& state, std::int64_t in, std::int64_t out);

/// y [rows, out] of x [rows, in] and a weight [out, in], or where `backward` dx of dy; weights: its format, without
/// blocks. Its bits do not depend on the number of threads.
std::unique_ptr<Direction> make_own_row_product(const dnnl::memory::desc& weights, bool backward);

}  // namespace convoy
