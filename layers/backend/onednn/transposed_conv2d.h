// SPDX-License-Identifier: Apache-2.0
//
// The input gradient of a 1×1 convolution as a forward convolution of dy with the transposed weight: oneDNN has had
// kernels for matrix units (AMX) in this direction before it had them in the other. With a stride the result is spread
// over dx, whose other pixels are zero. Private to layers/backend/onednn.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers/backend/backend.h"
#include "layers/backend/onednn/onednn_state.h"

namespace convoy {

/// The plan for dx [n, in, h, w]; its `weights` is the format of the layer's own weight [out, in, 1, 1].
BoundPrimitive bind_transposed_conv2d(OnednnState& state, const Conv2dSpec& spec, const Shape& dx, DType compute);

/// Sets dx. weight: in the format of `bound`.
void run_transposed_conv2d(OnednnState& state, Backend& backend, BoundPrimitive& bound, const Conv2dSpec& spec,
                           const Tensor& dy, void* weight, const Tensor& dx);

/// Sets images [n, height, width] of pixels of `pixel_bytes` to every stride-th pixel and row from `packed`, and zeros.
void spread_pixels(const std::byte* packed, std::int64_t images, std::int64_t height, std::int64_t width,
                   std::int64_t stride, std::size_t pixel_bytes, std::byte* spread);

}  // namespace convoy
