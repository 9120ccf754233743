// SPDX-License-Identifier: Apache-2.0
//
// Weight gradients as own matrix products: for each tap of the window dw [in, out] is the sum over pixels of the outer
// products of x and dy; of bfloat16 by the instruction that adds up products of pairs (AVX512-BF16). Pixels are put
// side by side on the way into the cache, without columns in memory. Private to layers/backend/onednn.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// Whether there is one of this window and these channels.
[[nodiscard]] bool has_pixel_gradient(const Conv2dSpec& spec);

/// The weight gradient of activations of this type in the format of im2col_weights(), without that of a bias: dbias
/// must be null. Its bits do not depend on the number of threads.
std::unique_ptr<WeightGradient> make_pixel_gradient(const Conv2dSpec& spec, const Shape& x, DType dtype);

/// That of a linear layer of `rows` rows, float32, for a weight [out, in] without blocks: rows of `in` elements or,
/// where `by_inputs`, of `out`.
std::unique_ptr<WeightGradient> make_row_gradient(std::int64_t rows, std::int64_t in, std::int64_t out, bool by_inputs);

}  // namespace convoy
