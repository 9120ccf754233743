// SPDX-License-Identifier: Apache-2.0
//
// Small matrix products of bfloat16 with sums in float32, by the instruction that adds up the products of pairs
// (AVX512-BF16), for operands that lie in a core's second-level cache: c = aᵀ b, for a [depth, rows] and
// b [depth, columns], whose neighbouring rows are paired in panels beforehand. Private to layers/backend/onednn.
#pragma once

#include <cstdint>

#include "layers/backend/onednn/bfloat16.h"
#include "layers/backend/onednn/lanes.h"

namespace convoy {

/// What pair_product() computes of c at a time.
constexpr std::int64_t kPairRows = 8;
constexpr std::int64_t kPairColumns = 2 * kLanes;

/// Sets panels of `width` columns, kLanes or kPairColumns, the last of what is left: panel after panel, each [pairs,
/// width] words of the elements of rows 2k and 2k + 1 in a column. Columns: [first, last) of each of 2 * pairs rows, in
/// whole vectors.
void pair_panels(const BFloat16* const* rows, std::int64_t pairs, std::int64_t first, std::int64_t last,
                 std::int64_t width, std::uint32_t* panels);

/// Sets c [kPairRows, columns] to aᵀ b, or adds it, for columns = kLanes or kPairColumns. Rows of words of a and b are
/// a_step and `columns` apart, rows of c c_step.
void pair_product(std::int64_t pairs, const std::uint32_t* a, std::int64_t a_step, const std::uint32_t* b,
                  std::int64_t columns, bool add, float* c, std::int64_t c_step);

}  // namespace convoy
