// SPDX-License-Identifier: Apache-2.0
//
// 3×3 convolutions of stride 1, with products in float32, by Winograd's minimal filtering F(m×m, 3×3) (Lavin & Gray,
// 2016): a tile of 4×4 outputs comes from 36 products a pair of channels where the direct way takes 144, one of 2×2
// from 16 instead of 36. The products of all tiles are matrix products, one for each point of the transforms
// (winograd_transforms.h). Private to layers/backend/onednn.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// The tile's side m, 2 or 4, by which such a convolution of x is fastest, by shape alone. 0 where the direct way is:
/// for few channels, for tiles half empty, and for few tiles, since the points of the weight are 16/9 or 4 times as
/// many bytes to read as the weight.
[[nodiscard]] std::int64_t winograd_side(const Conv2dSpec& spec, const Shape& x);

/// The memory of the points of a weight, G w Gᵀ, as forward or backward_input reads them: winograd_weight() and
/// winograd_weight_transposed() set it.
[[nodiscard]] dnnl::memory::desc winograd_weights(const Conv2dSpec& spec, std::int64_t m, bool backward_input);

/// y of x [n, in, h, w], or for backward_input dx of dy (its bias null), in tiles of m×m, float32 or bfloat16. Its
/// weight is winograd_weights(). The points of some tiles at a time come from the backend's pool.
std::unique_ptr<Direction> make_winograd(const Conv2dSpec& spec, const Shape& x, std::int64_t m, bool backward_input);

/// The weight gradient, by such tiles, in the format of im2col_weights(), without that of a bias: dbias must be null.
std::unique_ptr<WeightGradient> make_winograd_gradient(const Conv2dSpec& spec, const Shape& x, std::int64_t m);

}  // namespace convoy
