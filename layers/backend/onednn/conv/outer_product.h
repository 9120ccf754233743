// SPDX-License-Identifier: Apache-2.0
//
// Small float32 matrix products over pixels, for operands that lie in a core's second-level cache: c = aᵀ b, for
// a [depth, rows] and b [depth, columns] in panels of kLanes. The counterpart in float32 of pair_product.h. Private to
// layers/backend/onednn.
#pragma once

#include <cstdint>

namespace convoy {

/// Sets panels of kLanes columns, panel after panel, each [count, kLanes]: columns [first, last) of `count` rows, in
/// whole vectors.
void column_panels(const float* const* rows, std::int64_t count, std::int64_t first, std::int64_t last, float* panels);

/// Sets c [kLanes, kLanes] to aᵀ b, or adds it, for panels a and b of `depth` rows. Rows of c are c_step apart. Each
/// element is the sum over depth in its order.
void outer_product(std::int64_t depth, const float* a, const float* b, bool add, float* c, std::int64_t c_step);

}  // namespace convoy
