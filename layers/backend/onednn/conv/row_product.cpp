// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/conv/row_product.h"

#include <algorithm>
#include <vector>

#include "layers/backend/onednn/conv/outer_product.h"
#include "layers/backend/onednn/conv/panel_product.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/backend/onednn/vectorized.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kBlockBytes = 192 << 10;    // of rows that go through all panels at a time
constexpr std::int64_t kPanelsBytes = 4 << 20;     // of a weight in panels at a time, so that it may be a large one
constexpr std::int64_t kMinRows = 4 * kPanelRows;  // of them, so that panels are worth reading

// Sets the panels of columns [first, last), in whole vectors. rows: of a matrix that lies row by row.
void fill_panels(const RowMatrix& m, const float* const* rows, std::int64_t first, std::int64_t last, float* panels) {
  if (!m.transposed) return column_panels(rows, m.depth, first, last, panels);
  vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
    float* panel = panels;
    for (std::int64_t column = first; column < last; column += kLanes, panel += m.depth * kLanes) {
      for (std::int64_t k = 0; k < m.depth; k += kLanes) {
        transpose<Vector<float, width>>(m.data + column * m.depth + k, m.depth, panel + k * kLanes);
      }
    }
  });
}

class RowProduct final : public Direction {
 public:
  RowProduct(const dnnl::memory::desc& weights, bool transposed) : Direction(weights), transposed_(transposed) {}

  void run(OnednnState&, Backend& backend, const Tensor& from, void* weight, void* bias, const Tensor& to) override {
    const RowMatrix matrix{static_cast<const float*>(weight), from.shape().sample_size(), to.shape().sample_size(),
                           transposed_};
    const std::int64_t most = kPanelsBytes / (matrix.depth * std::int64_t{sizeof(float)});
    const std::int64_t some = std::max(most / kNarrowPanel, std::int64_t{1}) * kNarrowPanel;
    for (std::int64_t first = 0; first < matrix.columns; first += some) {
      const RowPanels panels(backend, matrix, first, std::min(first + some, matrix.columns));
      panels.multiply(from.shape()[0], from.data<float>(), static_cast<const float*>(bias), to.data<float>());
    }
  }

 private:
  bool transposed_;
};

}  // namespace

CONVOY_VECTORIZED void add_bias(const float* bias, std::int64_t rows, std::int64_t columns, float* y,
                                std::int64_t y_step) {
  for (std::int64_t row = 0; row < rows; ++row, y += y_step) {
    CONVOY_INDEPENDENT
    for (std::int64_t c = 0; c < columns; ++c) y[c] += bias[c];
  }
}

RowPanels::RowPanels(Backend& backend, const RowMatrix& matrix, std::int64_t first, std::int64_t last)
    : matrix_(matrix),
      first_(first),
      last_(last),
      panels_(backend.tensor({matrix.depth * (last - first)}, DType::kF32)) {
  std::vector<const float*> rows;
  for (std::int64_t k = 0; !matrix.transposed && k < matrix.depth; ++k) {
    rows.push_back(matrix.data + k * matrix.columns);
  }
  auto* panels = panels_.data<float>();
  parallel_ranges((last - first) / kNarrowPanel, 1, [=, &rows](std::int64_t from, std::int64_t to, int) {
    fill_panels(matrix, rows.data(), first + from * kNarrowPanel, first + to * kNarrowPanel,
                panels + from * kNarrowPanel * matrix.depth);
  });
}

void RowPanels::multiply(std::int64_t rows, const float* x, const float* bias, float* y) const {
  const std::int64_t depth = matrix_.depth, y_step = matrix_.columns, columns = last_ - first_;
  const auto* panels = panels_.data<float>();
  const float* bias_here = bias == nullptr ? nullptr : bias + first_;
  float* y_here = y + first_;
  const std::int64_t most = kBlockBytes / (depth * std::int64_t{sizeof(float)});
  const std::int64_t block = std::max(most / kPanelRows * kPanelRows, kMinRows);
  parallel_ranges(rows, kMinRows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t row = first; row < last; row += block) {
      const std::int64_t some = std::min(block, last - row);
      panel_product(some, depth, columns, x + row * depth, depth, panels, y_here + row * y_step, y_step, kNarrowPanel);
      if (bias_here != nullptr) add_bias(bias_here, some, columns, y_here + row * y_step, y_step);
    }
  });
}

bool has_own_row_product(std::int64_t in, std::int64_t out) {
  return in % kNarrowPanel == 0 && out % kNarrowPanel == 0;
}

bool by_own_rows(const OnednnState& state, std::int64_t in, std::int64_t out) {
  return state.rules.own_rows && has_own_row_product(in, out);
}

std::unique_ptr<Direction> make_own_row_product(const dnnl::memory::desc& weights, bool backward) {
  const bool by_outputs = dnnl_compat::blocking_of(weights).strides[1] == 1;  // a row of `in` elements for each output
  return std::make_unique<RowProduct>(weights, by_outputs != backward);
}

}  // namespace convoy
