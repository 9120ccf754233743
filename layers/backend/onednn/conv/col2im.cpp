// SPDX-License-Identifier: Apache-2.0
//
// The columns of one group of images stay in the second-level cache between being computed and being summed. Invariant:
// the sum over taps goes in their order, so it does not depend on the number of threads.
#include "layers/backend/onednn/conv/col2im.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "layers/backend/onednn/conv/row_product.h"
#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr std::int64_t kChannels = 256;  // summed at a time

std::int64_t group_size(const Im2colShape& s) { return s.group_of(sizeof(float)); }

// sums[c] += tap[c]
CONVOY_VECTORIZED void add_tap(const float* tap, std::int64_t channels, float* sums) {
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) sums[c] += tap[c];
}

template <class T>
CONVOY_VECTORIZED void round_sums(const float* sums, std::int64_t channels, T* pixel) {
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) store(sums[c], &pixel[c]);
}

// The output pixel along one axis that saw input `at` by `tap`; -1 for none.
std::int64_t seen_by(std::int64_t at, std::int64_t tap, const Im2colShape& s, std::int64_t extent) {
  const std::int64_t from = at + s.padding - tap;
  if (from < 0 || from % s.stride != 0) return -1;
  return from / s.stride < extent ? from / s.stride : -1;
}

class Col2imBackward final : public Direction {
 public:
  /// product: the columns of a group of images; none for own products of float32.
  Col2imBackward(BoundPrimitive product, const memory::desc& weights, const Im2colShape& shapes)
      : Direction(weights), product_(std::move(product)), shapes_(shapes) {}

  void run(OnednnState& state, Backend& backend, const Tensor& dy, void* weight, void* /*bias*/,
           const Tensor& dx) override {
    const Im2colShape& s = shapes_;
    const std::int64_t group = group_size(s);
    const Tensor columns = backend.tensor({group * s.pixels(), s.depth()}, DType::kF32);
    const auto bytes = static_cast<std::int64_t>(dtype_size(dx.dtype()));
    auto* from = static_cast<std::byte*>(dy.raw());
    auto* to = static_cast<std::byte*>(dx.raw());
    std::optional<RowPanels> panels;
    if (!product_.primitive) {
      panels.emplace(backend, RowMatrix{static_cast<const float*>(weight), s.out, s.depth(), true});
    }
    for (std::int64_t image = 0; image < s.images; image += group) {
      std::byte* pixels = from + image * s.pixels() * s.out * bytes;
      if (panels) {
        panels->multiply(group * s.pixels(), reinterpret_cast<const float*>(pixels), nullptr, columns.data<float>());
      } else {
        run_primitive(state, backend, product_,
                      {{DNNL_ARG_SRC, pixels}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, columns.raw()}});
      }
      sum_columns(s, columns.data<float>(), group, dx.dtype(), to + image * s.height * s.width * s.in * bytes);
    }
  }

 private:
  BoundPrimitive product_;
  Im2colShape shapes_;
};

}  // namespace

std::unique_ptr<Direction> make_col2im_backward(OnednnState& state, const Conv2dSpec& spec, const Shape& dx,
                                                DType compute) {
  const Im2colShape s(spec, dx);
  const auto type = onednn_type(compute);
  const std::int64_t rows = group_size(s) * s.pixels();
  const bool native = compute == DType::kF32;  // the stored weight itself, transposed: no copy
  const memory::desc dy({rows, s.out}, type, Tag::ab), weight({s.out, s.depth()}, type, native ? Tag::ba : Tag::ab),
      columns({rows, s.depth()}, memory::data_type::f32, Tag::ab);
  const memory::desc weights({s.out, s.in, s.kernel, s.kernel}, type, native ? Tag::hwio : Tag::ohwi);
  const bool own = native && by_own_rows(state, s.in, s.out);
  auto product = own ? BoundPrimitive() : bind_product(state, dy, weight, columns, false);
  return std::make_unique<Col2imBackward>(std::move(product), weights, s);
}

void sum_columns(const Im2colShape& s, const float* columns, std::int64_t images, DType dtype, void* dx) {
  dispatch_activation(dtype, [&](auto type) {
    using T = decltype(type);
    parallel_ranges(images * s.height, 1, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t line = first; line < last; ++line) {
        const std::int64_t image = line / s.height, h = line % s.height;
        for (std::int64_t w = 0; w < s.width; ++w) {
          for (std::int64_t channel = 0; channel < s.in; channel += kChannels) {
            const std::int64_t channels = std::min(kChannels, s.in - channel);
            float sums[kChannels] = {};
            for (std::int64_t tap = 0; tap < s.kernel * s.kernel; ++tap) {
              const std::int64_t row = seen_by(h, tap / s.kernel, s, s.out_height),
                                 column = seen_by(w, tap % s.kernel, s, s.out_width);
              if (row < 0 || column < 0) continue;
              const std::int64_t pixel = (image * s.out_height + row) * s.out_width + column;
              add_tap(columns + pixel * s.depth() + tap * s.in + channel, channels, sums);
            }
            round_sums(sums, channels, static_cast<T*>(dx) + (line * s.width + w) * s.in + channel);
          }
        }
      }
    });
  });
}

}  // namespace convoy
