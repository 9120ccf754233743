// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of 1×1 windows in float32 as linear layers whose rows are pixels: oneDNN's packed matrix product (BLAS's
// sgemm, behind its inner product) takes 10 to 15 % less time for ResNet-50's than its 1×1 kernels do, forward and
// backward, and all directions read the weight in one format. Private to layers/backend/onednn.
#pragma once

#include <cstdint>

#include <dnnl.hpp>

#include "layers/backend/backend.h"

namespace convoy {

/// In which format linear layers of `rows` rows read a weight [out, in] and write its gradient: one without blocks
/// where the packed product is the fastest, or `any`, oneDNN's own choice.
[[nodiscard]] dnnl::memory::format_tag row_product_format(std::int64_t rows, std::int64_t in, std::int64_t out,
                                                          DType compute);

/// Whether this convolution of x [n, in, h, w] is faster as a linear layer.
[[nodiscard]] bool has_row_product(const Conv2dSpec& spec, const Shape& x, DType compute);

/// The pixels [n, in, out_height, out_width] of x that such a convolution with a stride looks at, of any element type.
[[nodiscard]] Tensor packed_pixels(Backend& backend, const Conv2dSpec& spec, const Tensor& x);

/// x or y [n, channels, h, w] as the linear layer's rows [n * h * w, channels].
[[nodiscard]] Tensor as_rows(const Tensor& y);

/// The other way round: a linear layer as a convolution of images of one pixel.
[[nodiscard]] Conv2dSpec pointwise_spec(std::int64_t in, std::int64_t out);

/// Its rows [n, channels] as such images [n, channels, 1, 1].
[[nodiscard]] Tensor as_pixels(const Tensor& rows);

/// Sets images x [n, in, h, w] to zeros, but every stride-th pixel of every stride-th row to `packed`'s [n, in,
/// (h - 1) / stride + 1, (w - 1) / stride + 1]; of any element type.
void spread_pixels(const Tensor& packed, std::int64_t stride, const Tensor& x);

/// Adds them to x's: float32 and bfloat16.
void add_pixels(const Tensor& packed, std::int64_t stride, const Tensor& x);

}  // namespace convoy
