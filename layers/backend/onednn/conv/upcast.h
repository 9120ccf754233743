// SPDX-License-Identifier: Apache-2.0
//
// Products of bfloat16 activations in float32, for CPUs on which their own instruction is the slower one: some images
// are converted at a time, so that their float32 numbers stay in the cache from the conversion to the product. Private
// to layers/backend/onednn.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// How many of the images of x [n, ...] and y [n, ...], or of the rows of matrices, go at a time: a divisor of n; all
/// of them where activations are not converted.
[[nodiscard]] std::int64_t images_of_part(const OnednnState& state, const Shape& x, const Shape& y);

/// `inner`, which computes in OnednnState::products for so many images, for activations as they are, any number of such
/// parts; inner itself where they need no conversion.
std::unique_ptr<Direction> in_parts(const OnednnState& state, std::unique_ptr<Direction> inner, std::int64_t images);

/// The same of a weight gradient: the sum over the parts.
std::unique_ptr<WeightGradient> in_parts(const OnednnState& state, std::unique_ptr<WeightGradient> inner,
                                         std::int64_t images);

}  // namespace convoy
