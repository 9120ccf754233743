// SPDX-License-Identifier: Apache-2.0
//
// A convolution and its weight gradient as matrix products over its columns (im2col; Chellapilla et al., 2006): y is
// columns W and dW is columns^T dy, where row p of the columns holds what output pixel p saw. oneDNN's matrix product
// has kernels for matrix units (AMX) that reach several times what its weight gradients do there, and in float32 twice
// what its strided convolutions to many channels do. Private to layers/backend/onednn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// A convolution of one group with squares over channels-last images [n, height, width, in].
struct Im2colShape {
  Im2colShape(const Conv2dSpec& spec, const Shape& x);
  std::int64_t images, height, width, in, out, kernel, stride, padding, out_height, out_width;

  /// Inputs that an output pixel sees: kernel * kernel * in.
  [[nodiscard]] std::int64_t depth() const { return kernel * kernel * in; }
  [[nodiscard]] std::int64_t pixels() const { return out_height * out_width; }  ///< of an image's output
  /// The input, as it lies in memory, is its own columns.
  [[nodiscard]] bool gathered() const { return kernel != 1 || stride != 1 || padding != 0; }
  /// The most images whose columns stay in the second-level cache, or that give products enough rows, as a divisor of
  /// all.
  [[nodiscard]] std::int64_t group_of(std::size_t element_bytes) const;
};

/// The largest divisor of `images` that is not above `most` or `least`, so that one size of product does; all of them
/// where it would be below `least`, as of a prime number of small images.
[[nodiscard]] std::int64_t images_at_a_time(std::int64_t images, std::int64_t most, std::int64_t least);

/// Sets rows [first, last) of the columns [images * pixels, depth], counted from the first pixel of x, at `columns`;
/// elements have `element_bytes`.
void im2col(const Im2colShape& shapes, const std::byte* x, std::int64_t first, std::int64_t last,
            std::size_t element_bytes, std::byte* columns);

/// The format of a weight [out, in, kernel, kernel] in float32: a row of `out` elements for each input in a column.
[[nodiscard]] dnnl::memory::desc im2col_weights(const Conv2dSpec& spec);

/// y of x. Its weight is im2col_weights(). The columns of some images at a time come from the backend's
/// pool.
std::unique_ptr<Direction> make_im2col_forward(OnednnState& state, const Conv2dSpec& spec, const Shape& x);

/// The weight gradient in the format of im2col_weights(), without that of a bias: dbias must be null.
/// compute: of x and dy. The columns of some images at a time come from the backend's pool.
std::unique_ptr<WeightGradient> make_im2col_gradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                                     DType compute);

}  // namespace convoy
