// SPDX-License-Identifier: Apache-2.0
//
// The input gradient of a strided convolution as matrix products and sums over taps (col2im): dy times the weight
// gives, for each output pixel, what it adds to every input that it saw. On matrix units (AMX) oneDNN's own gradient
// reaches a fifth of the product's speed, and a forward convolution (transposed_conv2d.h) knows no strides. Private to
// layers/backend/onednn.
#pragma once

#include "layers/backend/backend.h"
#include "layers/backend/onednn/column_product.h"
#include "layers/backend/onednn/onednn_state.h"

namespace convoy {

/// The plan for dx [n, in, h, w]: the product for some images at a time. Its `weights` is the format of the layer's
/// own weight [out, in, k, k]: a row of columns for each output channel, or in float32 the native one.
BoundPrimitive bind_column_spread(OnednnState& state, const Conv2dSpec& spec, const Shape& dx, DType compute);

/// Sets dx. weight: in the format of `bound`. The columns of some images at a time come from `backend`'s pool.
void run_column_spread(OnednnState& state, Backend& backend, BoundPrimitive& bound, const Conv2dSpec& spec,
                       const Tensor& dy, void* weight, const Tensor& dx);

/// Sets `images` of dx [height, width, in] from their columns [images * pixels, depth], summed in float32.
void sum_columns(const ColumnShapes& shapes, const float* columns, std::int64_t images, DType dtype, void* dx);

}  // namespace convoy
