// SPDX-License-Identifier: Apache-2.0
//
// The points of one group of images stay in the second-level cache from their transform through the product to the
// next transform. What lies outside an image is read from a pixel of zeros and written to one that nobody reads.
#include "layers/backend/onednn/winograd.h"

#include <algorithm>
#include <array>

#include "layers/backend/onednn/column_product.h"
#include "layers/base/error.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

using dnnl::memory;

constexpr std::int64_t kGroupBytes = 5 << 18;  // 1.25 MiB, beside the weight's points in 2 MiB
constexpr std::int64_t kLeastRows = 64;        // of a matrix product, so that the weight's points are worth reading
constexpr std::int64_t kGrain = 16;            // tiles that make a part worth a thread
constexpr std::size_t kMostPixels = 36;        // of a patch
constexpr auto kF32 = memory::data_type::f32;

// Planes [rows, columns] of float32, one for each of `count` points.
memory::desc planes(std::int64_t count, std::int64_t rows, std::int64_t columns) {
  return {{count, rows, columns}, kF32, {winograd_step(rows * columns), columns, 1}};
}

// The points of a group's tiles: planes [tiles, channels].
struct Points {
  std::int64_t count, rows, channels;

  [[nodiscard]] std::int64_t step() const { return winograd_step(rows * channels); }
  [[nodiscard]] memory::desc matrices() const { return planes(count, rows, channels); }
};

Points points_of(const TileGrid& g, std::int64_t channels) { return {g.points(), g.group() * g.tiles(), channels}; }

memory::desc transposed(const memory::desc& md) { return md.permute_axes({0, 2, 1}); }

// The tile `index`, counted over all images of a group: its image, and its first output pixel.
struct TilePlace {
  TilePlace(const TileGrid& g, std::int64_t index)
      : image(index / g.tiles()),
        row(index % g.tiles() / g.tile_columns() * g.side),
        column(index % g.tiles() % g.tile_columns() * g.side) {}
  std::int64_t image, row, column;
};

// Channels-last images of `height` x `width` pixels.
template <class T>
struct Images {
  T* data;
  std::int64_t height, width, channels;
  T* outside;  // what stands for the pixels beyond the edges

  // The pixels of a square from (row, column) on, from its end where `turned`.
  [[nodiscard]] std::array<T*, kMostPixels> square(std::int64_t image, std::int64_t row, std::int64_t column,
                                                   std::int64_t side, bool turned) const {
    std::array<T*, kMostPixels> pixels;
    T* base = data + image * height * width * channels;
    std::int64_t i = turned ? side * side - 1 : 0;
    for (std::int64_t h = row; h < row + side; ++h) {
      for (std::int64_t w = column; w < column + side; ++w, turned ? --i : ++i) {
        const bool inside = h >= 0 && h < height && w >= 0 && w < width;
        pixels[static_cast<std::size_t>(i)] = inside ? base + (h * width + w) * channels : outside;
      }
    }
    return pixels;
  }
};

// Calls body(tile, thread) for each tile of a group, counted over all its images.
template <class Body>
void for_tiles(const TileGrid& g, const Body& body) {
  parallel_ranges(g.group() * g.tiles(), kGrain, [&](std::int64_t first, std::int64_t last, int thread) {
    for (std::int64_t i = first; i < last; ++i) body(i, thread);
  });
}

// x: the first image of the group.
void patches(const TileGrid& g, const float* x, const float* zeros, const Points& to, float* points) {
  const Images<const float> images{x, g.height, g.width, g.in, zeros};
  for_tiles(g, [&](std::int64_t i, int) {
    const TilePlace at(g, i);
    const auto pixels = images.square(at.image, at.row - g.padding, at.column - g.padding, g.side + 2, g.turned);
    winograd_patch(g.side, pixels.data(), g.in, to.step(), points + i * g.in);
  });
}

void gradients(const TileGrid& g, const float* dy, const float* zeros, const Points& to, float* points) {
  const Images<const float> images{dy, g.out_height, g.out_width, g.out, zeros};
  for_tiles(g, [&](std::int64_t i, int) {
    const TilePlace at(g, i);
    const auto pixels = images.square(at.image, at.row, at.column, g.side, false);
    winograd_gradient(g.side, pixels.data(), g.out, to.step(), points + i * g.out);
  });
}

// outside: [threads, out].
void tiles(const TileGrid& g, const Points& from, const float* points, const float* bias, float* outside, float* y) {
  for_tiles(g, [&](std::int64_t i, int thread) {
    const TilePlace at(g, i);
    const Images<float> images{y, g.out_height, g.out_width, g.out, outside + thread * g.out};
    const auto pixels = images.square(at.image, at.row, at.column, g.side, g.turned);
    winograd_tile(g.side, points + i * g.out, from.step(), g.out, bias, pixels.data());
  });
}

Tensor zero_pixel(Backend& backend, std::int64_t channels) {
  Tensor zeros = backend.tensor({channels}, DType::kF32);
  backend.zero(zeros);
  return zeros;
}

}  // namespace

std::int64_t winograd_side(const Conv2dSpec& s, const Shape& x, DType compute) {
  if (compute != DType::kF32 || s.kernel != 3 || s.stride != 1 || s.padding > 2) return 0;
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

TileGrid::TileGrid(const Conv2dSpec& spec, const Shape& x, std::int64_t m, bool backward_input)
    : side(m),
      images(x[0]),
      in(spec.in_channels),
      height(x[2]),
      width(x[3]),
      out(spec.out_channels),
      out_height(spec.output_extent(height)),
      out_width(spec.output_extent(width)),
      padding(spec.padding),
      turned(backward_input) {
  if (!backward_input) return;
  std::swap(in, out);
  std::swap(height, out_height);
  std::swap(width, out_width);
  padding = 2 - padding;
}

std::int64_t TileGrid::group() const {
  const std::int64_t image_bytes = tiles() * points() * (in + out) * std::int64_t{sizeof(float)};
  return images_at_a_time(images, kGroupBytes / image_bytes, (kLeastRows + tiles() - 1) / tiles());
}

BoundPrimitive bind_winograd(OnednnState& state, const TileGrid& g) {
  const memory::desc weights = planes(g.points(), g.turned ? g.out : g.in, g.turned ? g.in : g.out);
  auto bound = bind_product(state, points_of(g, g.in).matrices(), g.turned ? transposed(weights) : weights,
                            points_of(g, g.out).matrices(), false);
  bound.weights = weights;
  return bound;
}

void run_winograd(OnednnState& state, Backend& backend, BoundPrimitive& bound, const TileGrid& g, const Tensor& from,
                  void* weight, const float* bias, const Tensor& to) {
  const Points seen = points_of(g, g.in), made = points_of(g, g.out);
  const Tensor zeros = zero_pixel(backend, g.in), outside = backend.tensor({omp_get_max_threads(), g.out}, DType::kF32);
  const Tensor a = tensor_of(backend, seen.matrices()), c = tensor_of(backend, made.matrices());
  for (std::int64_t image = 0; image < g.images; image += g.group()) {
    patches(g, from.data<float>() + image * g.height * g.width * g.in, zeros.data<float>(), seen, a.data<float>());
    run_primitive(state, backend, bound,
                  {{DNNL_ARG_SRC, a.raw()}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, c.raw()}});
    tiles(g, made, c.data<float>(), bias, outside.data<float>(),
          to.data<float>() + image * g.out_height * g.out_width * g.out);
  }
}

WinogradGradient::WinogradGradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x, std::int64_t m)
    : WeightGradient(ColumnProduct::weights(spec)), grid_(spec, x, m, false) {
  const memory::desc a = transposed(points_of(grid_, grid_.in).matrices()), b = points_of(grid_, grid_.out).matrices(),
                     c = winograd_weights(spec, m);
  first_ = bind_product(state, a, b, c, false);
  if (grid_.group() < grid_.images) others_ = bind_product(state, a, b, c, true);
}

void WinogradGradient::run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, void* dw,
                           void* dbias) {
  if (dbias != nullptr) fail("Winograd's weight gradient gives no gradient of a bias");
  const TileGrid& g = grid_;
  const Points seen = points_of(g, g.in), wanted = points_of(g, g.out);
  const Tensor zeros = zero_pixel(backend, std::max(g.in, g.out));
  const Tensor a = tensor_of(backend, seen.matrices()), b = tensor_of(backend, wanted.matrices());
  const Tensor sums = tensor_of(backend, planes(g.points(), g.in, g.out));
  for (std::int64_t image = 0; image < g.images; image += g.group()) {
    patches(g, x.data<float>() + image * g.height * g.width * g.in, zeros.data<float>(), seen, a.data<float>());
    gradients(g, dy.data<float>() + image * g.out_height * g.out_width * g.out, zeros.data<float>(), wanted,
              b.data<float>());
    run_primitive(state, backend, image == 0 ? first_ : others_,
                  {{DNNL_ARG_SRC, a.raw()}, {DNNL_ARG_WEIGHTS, b.raw()}, {DNNL_ARG_DST, sums.raw()}});
  }
  winograd_weight_gradient(g.side, sums.data<float>(), g.in * g.out, static_cast<float*>(dw));
}

}  // namespace convoy
