// SPDX-License-Identifier: Apache-2.0
//
// The input gradient of a strided convolution as matrix products and sums over taps (col2im): dy times the weight
// gives, for each output pixel, what it adds to every input that it saw. On matrix units (AMX) oneDNN's own gradient
// reaches a fifth of the product's speed, and a forward convolution (transposed_conv2d.h) has no strides. Private to
// layers/backend/onednn.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/directions.h"

namespace convoy {

/// dx [n, in, h, w] of dy. Its weight is the layer's own [out, in, k, k], a row of columns for each output channel, or
/// in float32 im2col_weights(). The columns of some images at a time come from the backend's pool.
std::unique_ptr<Direction> make_col2im_backward(OnednnState& state, const Conv2dSpec& spec, const Shape& dx,
                                                DType compute);

/// Sets `images` of dx [height, width, in] from their columns [images * pixels, depth], summed in float32.
void sum_columns(const Im2colShape& shapes, const float* columns, std::int64_t images, DType dtype, void* dx);

}  // namespace convoy
