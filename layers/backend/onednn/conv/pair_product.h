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

/// The columns from `column` on of rows[0], rows[1], ...; without rows there are none.
struct PairSource {
  const BFloat16* const* rows = nullptr;
  std::int64_t column = 0;
};

/// Sets a panel [pairs, kLanes] of words of the elements of rows 2k and 2k + 1 in a column.
void pair_panel(const PairSource& from, std::int64_t pairs, std::uint32_t* panel);

/// What a product does on the way, beside its multiplications. A source without rows: nothing.
struct PairFill {
  PairSource b;       ///< sets b, of which nothing is read, from these rows
  PairSource next_a;  ///< sets next_a_panel, which is kLanes wide
  std::uint32_t* next_a_panel = nullptr;
  PairSource ahead;  ///< brings a cache line of every other one of 2 * pairs rows to the second-level cache
};

/// Sets c [kPairRows, columns] to aᵀ b, or adds it, for columns = kLanes or kPairColumns. Rows of words of a and b are
/// kLanes and `columns` apart, rows of c c_step.
void pair_product(std::int64_t pairs, const std::uint32_t* a, std::uint32_t* b, std::int64_t columns, bool add,
                  float* c, std::int64_t c_step, const PairFill& fill = {});

}  // namespace convoy
