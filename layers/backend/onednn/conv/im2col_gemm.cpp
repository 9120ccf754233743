// SPDX-License-Identifier: Apache-2.0
//
// The columns of one group of images stay in the second-level cache between being gathered and being read.
#include "layers/backend/onednn/conv/im2col_gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "layers/backend/onednn/conv/row_product.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/error.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

using dnnl::memory;
using Tag = dnnl::memory::format_tag;

constexpr std::int64_t kGroupBytes = 5 << 19;  // 2.5 MiB; 2 MiB is a core's second-level cache where AMX is
constexpr std::int64_t kGroupRows = 256;       // fewer read the weight, or write its gradient, too often
constexpr std::int64_t kBiasRows = 64;         // that make a part worth a thread

// Calls f(columns, first pixel) for each group of images, with that group's columns.
template <class F>
void for_each_group(Backend& backend, const Im2colShape& s, std::int64_t group, const Tensor& x, F&& f) {
  const std::int64_t rows = group * s.pixels();
  const std::size_t element_bytes = dtype_size(x.dtype()),
                    row_bytes = static_cast<std::size_t>(s.depth()) * element_bytes;
  auto* input = static_cast<std::byte*>(x.raw());
  Tensor gathered;
  if (s.gathered()) gathered = backend.tensor({rows, s.depth()}, x.dtype());
  for (std::int64_t from = 0; from < s.images * s.pixels(); from += rows) {
    std::byte* columns = input + static_cast<std::size_t>(from) * row_bytes;
    if (gathered) {
      columns = static_cast<std::byte*>(gathered.raw());
      parallel_ranges(rows, 16, [&](std::int64_t first, std::int64_t last, int) {
        im2col(s, input, from + first, from + last, element_bytes,
               columns + static_cast<std::size_t>(first) * row_bytes);
      });
    }
    f(columns, from);
  }
}

class Im2colForward final : public Direction {
 public:
  Im2colForward(OnednnState& state, const Conv2dSpec& spec, const Shape& x)
      : Direction(im2col_weights(spec)), shapes_(spec, x), group_(shapes_.group_of(sizeof(float))) {
    if (by_own_rows(state, shapes_.in, shapes_.out)) return;
    const std::int64_t rows = group_ * shapes_.pixels();
    const auto type = memory::data_type::f32;
    const memory::desc columns({rows, shapes_.depth()}, type, Tag::ab),
        weight({shapes_.depth(), shapes_.out}, type, Tag::ab), y({rows, shapes_.out}, type, Tag::ab);
    product_ = bind_product(state, columns, weight, y, false);
  }

  void run(OnednnState& state, Backend& backend, const Tensor& x, void* weight, void* bias, const Tensor& y) override {
    auto* output = y.data<float>();
    const auto* offsets = static_cast<const float*>(bias);
    if (!product_.primitive) {
      const RowPanels panels(backend, {static_cast<const float*>(weight), shapes_.depth(), shapes_.out, false});
      return for_each_group(backend, shapes_, group_, x, [&](std::byte* columns, std::int64_t from) {
        panels.multiply(group_ * shapes_.pixels(), reinterpret_cast<const float*>(columns), offsets,
                        output + from * shapes_.out);
      });
    }
    for_each_group(backend, shapes_, group_, x, [&](std::byte* columns, std::int64_t from) {
      float* to = output + from * shapes_.out;
      run_primitive(state, backend, product_,
                    {{DNNL_ARG_SRC, columns}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, to}});
      if (offsets == nullptr) return;
      parallel_ranges(group_ * shapes_.pixels(), kBiasRows, [=, this](std::int64_t first, std::int64_t last, int) {
        add_bias(offsets, last - first, shapes_.out, to + first * shapes_.out, shapes_.out);
      });
    });
  }

 private:
  Im2colShape shapes_;
  std::int64_t group_;      // images whose columns are there at a time; divides their number
  BoundPrimitive product_;  // none where the products are own ones
};

class Im2colGradient final : public WeightGradient {
 public:
  Im2colGradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x, DType compute)
      : WeightGradient(im2col_weights(spec)),
        shapes_(spec, x),
        group_(shapes_.gathered() ? shapes_.group_of(dtype_size(compute)) : shapes_.images) {
    const auto type = onednn_type(compute);
    const std::int64_t rows = group_ * shapes_.pixels();
    const memory::desc columns({shapes_.depth(), rows}, type, Tag::ba), dy({rows, shapes_.out}, type, Tag::ab),
        dw({shapes_.depth(), shapes_.out}, memory::data_type::f32, Tag::ab);
    first_ = bind_product(state, columns, dy, dw, false);
    if (group_ < shapes_.images) others_ = bind_product(state, columns, dy, dw, true);
  }

  void run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override {
    if (dbias) fail("a product over columns gives no gradient of a bias");
    auto* gradient = static_cast<std::byte*>(dy.raw());
    const std::size_t pixel_bytes = static_cast<std::size_t>(shapes_.out) * dtype_size(dy.dtype());
    for_each_group(backend, shapes_, group_, x, [&](std::byte* columns, std::int64_t from) {
      run_primitive(state, backend, from == 0 ? first_ : others_,
                    {{DNNL_ARG_SRC, columns},
                     {DNNL_ARG_WEIGHTS, gradient + static_cast<std::size_t>(from) * pixel_bytes},
                     {DNNL_ARG_DST, dw.raw()}});
    });
  }

 private:
  Im2colShape shapes_;
  std::int64_t group_;             // as above; all of them where x is its own columns
  BoundPrimitive first_, others_;  // the first sets dw, the others add to it
};

}  // namespace

Im2colShape::Im2colShape(const Conv2dSpec& spec, const Shape& x)
    : images(x[0]),
      height(x[2]),
      width(x[3]),
      in(spec.in_channels),
      out(spec.out_channels),
      kernel(spec.kernel.height),
      stride(spec.stride.height),
      padding(spec.padding.height),
      out_height(spec.output_height(height)),
      out_width(spec.output_width(width)) {}

std::int64_t Im2colShape::group_of(std::size_t element_bytes) const {
  const std::int64_t image_bytes = pixels() * depth() * static_cast<std::int64_t>(element_bytes);
  return images_at_a_time(images, kGroupBytes / image_bytes, (kGroupRows + pixels() - 1) / pixels());
}

std::int64_t images_at_a_time(std::int64_t images, std::int64_t most, std::int64_t least) {
  std::int64_t group = std::clamp<std::int64_t>(std::max(most, least), 1, images);
  while (images % group != 0) --group;
  return group < least ? images : group;
}

void im2col(const Im2colShape& s, const std::byte* x, std::int64_t first, std::int64_t last, std::size_t element_bytes,
            std::byte* columns) {
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

memory::desc im2col_weights(const Conv2dSpec& s) {
  return {{s.out_channels, s.in_channels, s.kernel.height, s.kernel.width}, memory::data_type::f32, Tag::hwio};
}

std::unique_ptr<Direction> make_im2col_forward(OnednnState& state, const Conv2dSpec& spec, const Shape& x) {
  return std::make_unique<Im2colForward>(state, spec, x);
}

std::unique_ptr<WeightGradient> make_im2col_gradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                                     DType compute) {
  return std::make_unique<Im2colGradient>(state, spec, x, compute);
}

}  // namespace convoy
