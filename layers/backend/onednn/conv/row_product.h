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

/// Whether there is one of these numbers of features.
[[nodiscard]] bool has_own_row_product(std::int64_t in, std::int64_t out);

/// y [rows, out] of x [rows, in] and a weight [out, in], or where `backward` dx of dy; weights: its format, without
/// blocks. Its bits do not depend on the number of threads.
std::unique_ptr<Direction> make_own_row_product(const dnnl::memory::desc& weights, bool backward);

}  // namespace convoy
