// SPDX-License-Identifier: Apache-2.0
//
// The points of one group of images stay in the second-level cache from their transform through the product to the
// next transform.
#include "layers/backend/onednn/conv/winograd.h"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/conv/winograd_tiles.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

using dnnl::memory;

constexpr auto kF32 = memory::data_type::f32;

// Planes [rows, columns] of float32, one for each of `count` points.
memory::desc planes(std::int64_t count, std::int64_t rows, std::int64_t columns) {
  return {{count, rows, columns}, kF32, {winograd_step(rows * columns), columns, 1}};
}

// Those of a group's tiles.
memory::desc tile_planes(const TileGrid& g, std::int64_t channels) { return planes(g.points(), g.rows(), channels); }

memory::desc transposed(const memory::desc& md) { return md.permute_axes({0, 2, 1}); }

Tensor zero_pixel(Backend& backend, std::int64_t channels) {
  Tensor zeros = backend.tensor({channels}, DType::kF32);
  backend.zero(zeros);
  return zeros;
}

class Winograd final : public Direction {
 public:
  Winograd(OnednnState& state, const Conv2dSpec& spec, const Shape& x, std::int64_t m, bool backward_input)
      : Direction(winograd_weights(spec, m)),
        grid_(spec, x, m, backward_input),
        product_(bind_product(state, tile_planes(grid_, grid_.in), backward_input ? transposed(weights()) : weights(),
                              tile_planes(grid_, grid_.out), false)) {}

  void run(OnednnState& state, Backend& backend, const Tensor& from, void* weight, void* bias,
           const Tensor& to) override {
    const TileGrid& g = grid_;
    const Tensor zeros = zero_pixel(backend, g.in),
                 outside = backend.tensor({omp_get_max_threads(), g.out}, DType::kF32);
    const Tensor a = tensor_of(backend, tile_planes(g, g.in)), c = tensor_of(backend, tile_planes(g, g.out));
    for (std::int64_t image = 0; image < g.images; image += g.group()) {
      winograd_patches(g, from.data<float>() + image * g.height * g.width * g.in, zeros.data<float>(), a.data<float>());
      run_primitive(state, backend, product_,
                    {{DNNL_ARG_SRC, a.raw()}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, c.raw()}});
      winograd_tiles(g, c.data<float>(), static_cast<const float*>(bias), outside.data<float>(),
                     to.data<float>() + image * g.out_height * g.out_width * g.out);
    }
  }

 private:
  TileGrid grid_;
  BoundPrimitive product_;
};

class WinogradGradient final : public WeightGradient {
 public:
  WinogradGradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x, std::int64_t m)
      : WeightGradient(im2col_weights(spec)), grid_(spec, x, m, false) {
    const memory::desc a = transposed(tile_planes(grid_, grid_.in)), b = tile_planes(grid_, grid_.out),
                       c = winograd_weights(spec, m);
    first_ = bind_product(state, a, b, c, false);
    if (grid_.group() < grid_.images) others_ = bind_product(state, a, b, c, true);
  }

  void run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override {
    if (dbias) fail("Winograd's weight gradient gives no gradient of a bias");
    const TileGrid& g = grid_;
    const Tensor zeros = zero_pixel(backend, std::max(g.in, g.out));
    const Tensor a = tensor_of(backend, tile_planes(g, g.in)), b = tensor_of(backend, tile_planes(g, g.out));
    const Tensor sums = tensor_of(backend, planes(g.points(), g.in, g.out));
    for (std::int64_t image = 0; image < g.images; image += g.group()) {
      winograd_patches(g, x.data<float>() + image * g.height * g.width * g.in, zeros.data<float>(), a.data<float>());
      winograd_gradients(g, dy.data<float>() + image * g.out_height * g.out_width * g.out, zeros.data<float>(),
                         b.data<float>());
      run_primitive(state, backend, image == 0 ? first_ : others_,
                    {{DNNL_ARG_SRC, a.raw()}, {DNNL_ARG_WEIGHTS, b.raw()}, {DNNL_ARG_DST, sums.raw()}});
    }
    winograd_weight_gradient(g.side, sums.data<float>(), g.in * g.out, dw.data<float>());
  }

 private:
  TileGrid grid_;
  BoundPrimitive first_, others_;  // the first group sets the points, the others add to them
};

}  // namespace

std::int64_t winograd_side(const Conv2dSpec& s, const Shape& x, DType compute) {
  if (compute != DType::kF32 || !s.is_plain() || s.kernel != 3 || s.stride != 1 || s.padding.height > 2) return 0;
  if (s.in_channels % kLanes != 0 || s.out_channels % kLanes != 0) return 0;
  if (std::min(s.in_channels, s.out_channels) < 48) return 0;
  for (const std::int64_t m : {4, 2}) {
    const TileGrid grid(s, x, m, false);
    const bool fills_tiles = grid.points() * grid.tiles() < 5 * grid.out_height * grid.out_width;  // directly: 9
    const bool reads_little =
        320 * grid.images * grid.tiles() >= grid.points() * std::max(s.in_channels, s.out_channels);
    if (fills_tiles && reads_little) return m;
  }
  return 0;
}

memory::desc winograd_weights(const Conv2dSpec& s, std::int64_t m) {
  return planes(winograd_points(m), s.in_channels, s.out_channels);
}

std::unique_ptr<Direction> make_winograd(OnednnState& state, const Conv2dSpec& spec, const Shape& x, std::int64_t m,
                                         bool backward_input) {
  return std::make_unique<Winograd>(state, spec, x, m, backward_input);
}

std::unique_ptr<WeightGradient> make_winograd_gradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                                       std::int64_t m) {
  return std::make_unique<WinogradGradient>(state, spec, x, m);
}

}  // namespace convoy
