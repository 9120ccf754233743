// SPDX-License-Identifier: Apache-2.0
//
// Weight gradients of bfloat16 convolutions as own matrix products: for each tap of the window dw [in, out] is the sum
// over pixels of the outer products of x and dy, by the instruction that adds up products of pairs (AVX512-BF16). Pairs
// of pixels are put side by side on the way into the cache, without columns in memory. Private to
// layers/backend/onednn.
#pragma once

#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// The weight gradient of bfloat16 activations in the format of im2col_weights(), without that of a bias: dbias must be
/// null. Channels in whole vectors of kLanes. Its bits do not depend on the number of threads.
std::unique_ptr<WeightGradient> make_pixel_gradient(const Conv2dSpec& spec, const Shape& x);

}  // namespace convoy
