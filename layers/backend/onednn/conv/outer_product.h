// SPDX-License-Identifier: Apache-2.0
//
// Small float32 matrix products over pixels or tiles, for operands that lie in a core's second-level cache: c = aᵀ b,
// for a [depth, rows] and b [depth, columns] in panels of kLanes. The counterpart in float32 of pair_product.h. Private
// to layers/backend/onednn.
#pragma once

#include <cstdint>

#include "layers/backend/onednn/conv/register_tile.h"
#include "layers/backend/onednn/lanes.h"

namespace convoy {

/// Sets panels of kLanes columns, panel after panel, each [count, kLanes]: columns [first, last) of `count` rows, in
/// whole vectors.
void column_panels(const float* const* rows, std::int64_t count, std::int64_t first, std::int64_t last, float* panels);

/// The most columns of an outer product.
constexpr std::int64_t kOuterColumns = 2 * kLanes;

/// Sets or adds the tile [kLanes, columns] aᵀ b for panels a and b of `depth` rows; columns: kLanes or kOuterColumns.
/// Each element is the sum over depth in its order.
void outer_product(std::int64_t depth, const float* a, const float* b, std::int64_t columns, const TileOutput& out);

}  // namespace convoy
