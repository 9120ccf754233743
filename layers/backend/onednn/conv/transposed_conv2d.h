// SPDX-License-Identifier: Apache-2.0
//
// The input gradient of a convolution as a forward convolution of dy with the weight transposed and turned by 180
// degrees, as oneDNN 3 does it: version 2 has its best kernels for matrix units (AMX) in this direction only. Private
// to layers/backend/onednn.
#pragma once

#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// Whether there is such a convolution: there is none for a stride.
[[nodiscard]] bool has_transposed_conv2d(const Conv2dSpec& spec);

/// dx [n, in, h, w] of dy. Its weight is the layer's own [out, in, k, k], turned.
std::unique_ptr<Direction> make_transposed_conv2d(OnednnState& state, const Conv2dSpec& spec, const Shape& dx,
                                                  DType compute);

}  // namespace convoy
