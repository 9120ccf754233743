// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/conv/pointwise_conv2d.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/element.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

// y += x, both [count].
template <class T>
CONVOY_VECTORIZED void add_pixel(const T* x, std::int64_t count, T* y) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) store(load(y[i]) + load(x[i]), y + i);
}

}  // namespace

// The packed product pays where its packing is spread over many products; bfloat16 wants pairs of rows. Its weight
// gradient is faster by up to a quarter when the longer side of the result lies in memory's order.
dnnl::memory::format_tag row_product_format(std::int64_t rows, std::int64_t in, std::int64_t out, DType compute) {
  using Tag = dnnl::memory::format_tag;
  if (compute != DType::kF32 || rows < 128 || in * out < 4096) return Tag::any;
  return out >= 2 * in ? Tag::ba : Tag::ab;
}

bool has_row_product(const Conv2dSpec& spec, const Shape& x, DType compute) {
  const Shape y = spec.output_shape(x);
  return spec.is_plain() && spec.kernel == 1 && spec.padding == 0 &&
         row_product_format(y[0] * y[2] * y[3], spec.in_channels, spec.out_channels, compute) !=
             dnnl::memory::format_tag::any;
}

Tensor packed_pixels(Backend& backend, const Conv2dSpec& spec, const Tensor& x) {
  const Im2colShape shapes(spec, x.shape());
  Tensor packed = backend.tensor({shapes.images, shapes.in, shapes.out_height, shapes.out_width}, x.dtype());
  const std::size_t element_bytes = dtype_size(x.dtype());
  auto* to = static_cast<std::byte*>(packed.raw());
  parallel_ranges(shapes.images * shapes.pixels(), 16, [&](std::int64_t first, std::int64_t last, int) {
    im2col(shapes, static_cast<const std::byte*>(x.raw()), first, last, element_bytes,
           to + static_cast<std::size_t>(first * shapes.in) * element_bytes);
  });
  return packed;
}

Tensor as_rows(const Tensor& y) {
  const Shape& shape = y.shape();
  return y.reshaped({shape[0] * shape[2] * shape[3], shape[1]});
}

Conv2dSpec pointwise_spec(std::int64_t in, std::int64_t out) { return {in, out, 1, 1, 0}; }

Tensor as_pixels(const Tensor& rows) { return rows.reshaped({rows.shape()[0], rows.shape()[1], 1, 1}); }

void spread_pixels(const Tensor& packed, std::int64_t stride, const Tensor& x) {
  const std::int64_t height = x.shape()[2], width = x.shape()[3];
  const std::int64_t packed_height = packed.shape()[2], packed_width = packed.shape()[3];
  const std::size_t pixel_bytes = static_cast<std::size_t>(x.shape()[1]) * dtype_size(x.dtype());
  const auto* from = static_cast<const std::byte*>(packed.raw());
  auto* to = static_cast<std::byte*>(x.raw());
  parallel_ranges(x.shape()[0] * height, 16, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t line = first; line < last; ++line) {
      const std::int64_t image = line / height, row = line % height;
      std::byte* pixels = to + static_cast<std::size_t>(line * width) * pixel_bytes;
      std::memset(pixels, 0, static_cast<std::size_t>(width) * pixel_bytes);
      if (row % stride != 0) continue;
      const std::int64_t seen = (image * packed_height + row / stride) * packed_width;
      for (std::int64_t i = 0; i < packed_width; ++i) {
        std::memcpy(pixels + static_cast<std::size_t>(i * stride) * pixel_bytes,
                    from + static_cast<std::size_t>(seen + i) * pixel_bytes, pixel_bytes);
      }
    }
  });
}

void add_pixels(const Tensor& packed, std::int64_t stride, const Tensor& x) {
  const std::int64_t channels = x.shape()[1], height = x.shape()[2], width = x.shape()[3];
  const std::int64_t packed_height = packed.shape()[2], packed_width = packed.shape()[3];
  dispatch_activation(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = packed.data<T>();
    T* to = x.data<T>();
    parallel_ranges(x.shape()[0] * packed_height, 8, [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t line = first; line < last; ++line) {
        const std::int64_t image = line / packed_height, row = line % packed_height * stride;
        T* pixels = to + (image * height + row) * width * channels;
        for (std::int64_t i = 0; i < packed_width; ++i) {
          add_pixel(from + (line * packed_width + i) * channels, channels, pixels + i * stride * channels);
        }
      }
    });
  });
}

}  // namespace convoy
