// SPDX-License-Identifier: Apache-2.0
//
// 1x1 convolutions and linear layers in bfloat16 as own products of rows of pixels, by the instruction that adds up the
// products of pairs (AVX512-BF16): pairs of neighbouring channels lie side by side in both operands. Private to
// layers/backend/onednn.
#pragma once

#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// Whether there is one: windows of one pixel without padding, any stride, both numbers of channels multiples of
/// kLanes.
[[nodiscard]] bool has_row_product_bf16(const Conv2dSpec& spec);

/// Whether this CPU takes it in place of oneDNN's, for activations of this backend.
[[nodiscard]] bool by_own_rows_bf16(const OnednnState& state, const Conv2dSpec& spec);

/// y of x, or where `backward` dx of dy, without stride. Its weight is in panels of kLanes output channels (backward:
/// input channels), each a word for every pair of the others (OIhw8i16o2i, IOhw8o16i2o). Sums are float32, each in the
/// order of channels, a bias is added last. Its bits depend neither on the number of threads nor on that of pixels.
std::unique_ptr<Direction> make_row_product_bf16(const Conv2dSpec& spec, bool backward);

}  // namespace convoy
