// SPDX-License-Identifier: Apache-2.0
//
// Products over panels, of whole numbers and so exact, for every number of rows that a kernel has and some that take
// several; what lies between and behind the rows stays as it is.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/backend/onednn/conv/panel_product.h"

using namespace convoy;

namespace {

float whole(std::int64_t i) { return static_cast<float>(i * 7919 % 13 - 6); }

}  // namespace

TEST_CASE("panels hold every element of a matrix once, a panel's rows one after the other") {
  for (const std::int64_t panel : {kNarrowPanel, kWidePanel}) {
    for (const std::int64_t columns : {16, 32, 48, 96}) {
      constexpr std::int64_t kRows = 5;
      std::vector<int> seen(static_cast<std::size_t>(kRows * columns));
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
          ++seen.at(static_cast<std::size_t>(panel_offset(kRows, columns, panel, row, column)));
        }
      }
      CHECK(seen == std::vector<int>(seen.size(), 1));
    }
  }
  CHECK(panel_offset(5, 48, 32, 1, 2) == 34);            // 32 values a row
  CHECK(panel_offset(5, 48, 32, 1, 33) == 5 * 32 + 17);  // 16 in the last panel
  CHECK(panel_offset(5, 48, 16, 1, 33) == 2 * 5 * 16 + 17);
}

TEST_CASE("a product over panels is that of the matrices, for any number of rows") {
  constexpr float kUntouched = 1e30F;
  for (const std::int64_t columns : {16, 32, 48, 80}) {
    for (const std::int64_t depth : {1, 7, 64}) {
      for (std::int64_t rows = 1; rows <= 2 * kPanelRows + 1; ++rows) {
        CAPTURE(columns);
        CAPTURE(depth);
        CAPTURE(rows);
        const std::int64_t a_step = depth + 3, c_step = columns + 16;
        std::vector<float> a(static_cast<std::size_t>(rows * a_step), kUntouched),
            c(static_cast<std::size_t>(rows * c_step), kUntouched);
        std::vector<float> expected = c;
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t k = 0; k < depth; ++k) a[static_cast<std::size_t>(r * a_step + k)] = whole(r * depth + k);
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t n = 0; n < columns; ++n) {
            float sum = 0;
            for (std::int64_t k = 0; k < depth; ++k) sum += whole(r * depth + k) * whole(3 + k * columns + n);
            expected[static_cast<std::size_t>(r * c_step + n)] = sum;
          }
        }
        for (const std::int64_t panel : {kNarrowPanel, kWidePanel}) {
          std::vector<float> b(static_cast<std::size_t>(depth * columns)), product = c;
          for (std::int64_t k = 0; k < depth; ++k) {
            for (std::int64_t n = 0; n < columns; ++n) {
              b[static_cast<std::size_t>(panel_offset(depth, columns, panel, k, n))] = whole(3 + k * columns + n);
            }
          }
          panel_product(rows, depth, columns, a.data(), a_step, b.data(), product.data(), c_step, panel);
          CHECK(product == expected);
        }
      }
    }
  }
}
