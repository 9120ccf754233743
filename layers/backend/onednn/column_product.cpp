// SPDX-License-Identifier: Apache-2.0
//
// The columns of one group of images stay in the second-level cache between being gathered and being read.
#include "layers/backend/onednn/column_product.h"

#include <cstring>

#include "layers/base/error.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

using dnnl::memory;
using Tag = dnnl::memory::format_tag;

constexpr std::int64_t kGroupBytes = 5 << 19;  // 2.5 MiB; 2 MiB is a core's second-level cache where AMX is

BoundPrimitive bind_columns(OnednnState& state, const ColumnShapes& s, DType compute, std::int64_t group, bool add) {
  const auto type = onednn_type(compute);
  const std::int64_t rows = group * s.pixels();
  const memory::desc columns({s.depth(), rows}, type, Tag::ba), dy({rows, s.out}, type, Tag::ab),
      dw({s.depth(), s.out}, memory::data_type::f32, Tag::ab);
  return bind_product(state, columns, dy, dw, add);
}

}  // namespace

ColumnShapes::ColumnShapes(const Conv2dSpec& spec, const Shape& x)
    : images(x[0]),
      height(x[2]),
      width(x[3]),
      in(spec.in_channels),
      out(spec.out_channels),
      kernel(spec.kernel),
      stride(spec.stride),
      padding(spec.padding),
      out_height(spec.output_extent(height)),
      out_width(spec.output_extent(width)) {}

std::int64_t ColumnShapes::group_of(std::size_t element_bytes) const {
  const std::int64_t image_bytes = pixels() * depth() * static_cast<std::int64_t>(element_bytes);
  return images_at_a_time(images, kGroupBytes / image_bytes);
}

std::int64_t images_at_a_time(std::int64_t images, std::int64_t most) {
  std::int64_t group = std::clamp<std::int64_t>(most, 1, images);
  while (images % group != 0) --group;
  return group;
}

void gather_columns(const ColumnShapes& s, const std::byte* x, std::int64_t first, std::int64_t last,
                    std::size_t element_bytes, std::byte* columns) {
  const std::size_t tap = static_cast<std::size_t>(s.in) * element_bytes;
  for (std::int64_t pixel = first; pixel < last; ++pixel) {
    const std::int64_t image = pixel / s.pixels(), row = pixel % s.pixels() / s.out_width, column = pixel % s.out_width;
    std::byte* to = columns + static_cast<std::size_t>((pixel - first) * s.depth()) * element_bytes;
    for (std::int64_t i = 0; i < s.kernel * s.kernel; ++i, to += tap) {
      const std::int64_t h = row * s.stride - s.padding + i / s.kernel,
                         w = column * s.stride - s.padding + i % s.kernel;
      if (h < 0 || h >= s.height || w < 0 || w >= s.width) {
        std::memset(to, 0, tap);
      } else {
        std::memcpy(to, x + static_cast<std::size_t>((image * s.height + h) * s.width + w) * tap, tap);
      }
    }
  }
}

ColumnProduct::ColumnProduct(OnednnState& state, const Conv2dSpec& spec, const Shape& x, DType compute)
    : WeightGradient(weights(spec)),
      shapes_(spec, x),
      element_bytes_(dtype_size(compute)),
      group_(shapes_.gathered() ? shapes_.group_of(element_bytes_) : shapes_.images) {
  first_ = bind_columns(state, shapes_, compute, group_, false);
  if (group_ < shapes_.images) others_ = bind_columns(state, shapes_, compute, group_, true);
}

memory::desc ColumnProduct::weights(const Conv2dSpec& s) {
  return {{s.out_channels, s.in_channels, s.kernel, s.kernel}, memory::data_type::f32, Tag::hwio};
}

void ColumnProduct::run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, void* dw,
                        void* dbias) {
  if (dbias != nullptr) fail("a product over columns gives no gradient of a bias");
  const std::int64_t rows = group_ * shapes_.pixels();
  const auto row_bytes = static_cast<std::size_t>(shapes_.depth()) * element_bytes_;
  Tensor gathered;
  if (shapes_.gathered()) {
    gathered = backend.tensor({static_cast<std::int64_t>(row_bytes) * rows}, DType::kU8);
  }
  auto* input = static_cast<std::byte*>(x.raw());
  auto* gradient = static_cast<std::byte*>(dy.raw());
  for (std::int64_t from = 0; from < shapes_.images * shapes_.pixels(); from += rows) {
    std::byte* columns = input + static_cast<std::size_t>(from) * row_bytes;
    if (gathered) {
      columns = static_cast<std::byte*>(gathered.raw());
      parallel_ranges(rows, 16, [&](std::int64_t first, std::int64_t last, int) {
        gather_columns(shapes_, input, from + first, from + last, element_bytes_,
                       columns + static_cast<std::size_t>(first) * row_bytes);
      });
    }
    run_primitive(state, backend, from == 0 ? first_ : others_,
                  {{DNNL_ARG_SRC, columns},
                   {DNNL_ARG_WEIGHTS, gradient + static_cast<std::size_t>(from * shapes_.out) * element_bytes_},
                   {DNNL_ARG_DST, dw}});
  }
}

}  // namespace convoy
