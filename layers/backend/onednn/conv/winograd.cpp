// SPDX-License-Identifier: Apache-2.0
//
// Points stay in the second-level cache from their transform through the product to the next transform: those of some
// tiles of a thread, in the weight gradient those of a group of images.
#include "layers/backend/onednn/conv/winograd.h"

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/conv/outer_product.h"
#include "layers/backend/onednn/conv/panel_product.h"
#include "layers/backend/onednn/conv/winograd_tiles.h"
#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/error.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

using dnnl::memory;

constexpr auto kF32 = memory::data_type::f32;
constexpr std::int64_t kThreadTiles = 4;            // tiles that make a part worth a thread
constexpr std::int64_t kGrain = 16;                 // the same of the transforms alone
constexpr std::int64_t kThreadSumsBytes = 4 << 20;  // a weight gradient's points of which each thread keeps its own
constexpr std::int64_t kStepsApart = 16;  // between threads' planes: a core prefetches as many planes behind its own

// Planes [rows, columns] of float32, one for each of `count` points.
memory::desc planes(std::int64_t count, std::int64_t rows, std::int64_t columns) {
  return {{count, rows, columns}, kF32, {winograd_step(rows * columns), columns, 1}};
}

Tensor zero_pixel(Backend& backend, std::int64_t channels, DType dtype) {
  Tensor zeros = backend.tensor({channels}, dtype);
  backend.zero(zeros);
  return zeros;
}

// A thread takes some tiles at a time through all of it: their points, the products, and the outputs of these.
class Winograd final : public Direction {
 public:
  Winograd(const Conv2dSpec& spec, const Shape& x, std::int64_t m, bool backward_input)
      : Direction(winograd_weights(spec, m, backward_input)), grid_(spec, x, m, backward_input) {
    tiles_ = grid_.weight_in_memory() ? 2 * kPanelRows : kPanelRows;  // so that it is read half as often
    row_ = grid_.in + kLanes;  // so that the rows of a product fall on different sets of the caches
    step_ = winograd_step(tiles_ * std::max(row_, grid_.out));
  }

  void run(OnednnState&, Backend& backend, const Tensor& from, void* weight, void* bias, const Tensor& to) override {
    const TileGrid& g = grid_;
    const std::int64_t thread_elements = (g.points() + 1 + kStepsApart) * step_ + g.out, all = g.images * g.tiles();
    const std::int64_t threads = std::clamp<std::int64_t>(all / kThreadTiles, 1, omp_get_max_threads());
    const Tensor zeros = zero_pixel(backend, g.in, from.dtype()),
                 scratch = backend.tensor({threads, thread_elements}, DType::kF32);
    dispatch_activation(from.dtype(), [&](auto pixel) {
      using Pixel = decltype(pixel);
      const auto* x = from.data<Pixel>();
      auto* y = to.data<Pixel>();
      parallel_ranges(all, kThreadTiles, [&](std::int64_t first, std::int64_t last, int thread) {
        float* points = scratch.data<float>() + thread * thread_elements;
        // The products of a point overwrite the inputs of the one before it, so that all needs half of the cache.
        const TilePoints in{points + step_, row_, step_}, out{points, g.out, step_};
        auto* outside = reinterpret_cast<Pixel*>(points + (g.points() + 1) * step_);
        if (first == last) return;
        const std::int64_t parts = (last - first + tiles_ - 1) / tiles_, part = (last - first + parts - 1) / parts;
        for (std::int64_t i = first; i < last; i += part) {
          const std::int64_t end = std::min(i + part, last);
          winograd_patches(g, x, i, end, zeros.data<Pixel>(), in);
          for (std::int64_t p = 0; p < g.points(); ++p) {
            // Meanwhile memory brings what comes next.
            for (std::int64_t t = part * p / g.points(); t < part * (p + 1) / g.points(); ++t) {
              if (i + t < end) prefetch_outputs(g, y, i + t);
              if (end + t < last) prefetch_patch(g, x, end + t);
            }
            panel_product(end - i, g.in, g.out, in.data + p * step_, in.row,
                          static_cast<const float*>(weight) + p * winograd_step(g.in * g.out), out.data + p * step_,
                          out.row);
          }
          winograd_tiles(g, out, i, end, static_cast<const float*>(bias), outside, y);
        }
      });
    });
  }

 private:
  TileGrid grid_;
  std::int64_t tiles_, row_, step_;  // tiles at a time; how their points lie
};

// A thread takes groups of images of its own through transforms and products, so that no points go from one core's
// cache to another's, and adds up sums of its own. Where these are large, all threads take each group together.
class WinogradGradient final : public WeightGradient {
 public:
  WinogradGradient(const Conv2dSpec& spec, const Shape& x, std::int64_t m)
      : WeightGradient(im2col_weights(spec)), grid_(spec, x, m, false), groups_(grid_.images / grid_.group()) {}

  void run(OnednnState&, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override {
    if (dbias) fail("Winograd's weight gradient gives no gradient of a bias");
    const TileGrid& g = grid_;
    const Tensor zeros = zero_pixel(backend, std::max(g.in, g.out), x.dtype());
    const std::int64_t sums = g.points() * winograd_step(g.in * g.out);
    const bool apart = sums * std::int64_t{sizeof(float)} <= kThreadSumsBytes;
    std::vector<Part> parts(
        static_cast<std::size_t>(apart ? std::clamp<std::int64_t>(groups_, 1, omp_get_max_threads()) : 1));
    for (Part& part : parts) {
      part.a = backend.tensor({g.points() * g.step(g.in)}, DType::kF32);
      part.b = backend.tensor({g.points() * g.step(g.out)}, DType::kF32);
      part.sums = backend.tensor({sums}, DType::kF32);
    }
    if (parts.size() == 1) {
      for (std::int64_t group = 0; group < groups_; ++group) {
        parallel_ranges(g.rows(), kGrain, [&](std::int64_t first, std::int64_t last, int) {
          set_points(x, dy, zeros, group, first, last, parts[0]);
        });
        parallel_ranges(products(), 1, [&](std::int64_t first, std::int64_t last, int) {
          multiply(first, last, group > 0, parts[0]);
        });
      }
    } else {
      parallel_ranges(groups_, 1, [&](std::int64_t first, std::int64_t last, int thread) {
        Part& part = parts[static_cast<std::size_t>(thread)];
        for (std::int64_t group = first; group < last; ++group) {
          set_points(x, dy, zeros, group, 0, g.rows(), part);
          multiply(0, products(), group > first, part);
        }
        part.used = first < last;
      });
    }
    auto* total = parts[0].sums.data<float>();
    for (std::size_t part = 1; part < parts.size(); ++part) {
      if (parts[part].used) add(parts[part].sums.data<float>(), sums, total);
    }
    winograd_weight_gradient(g.side, total, g.in * g.out, dw.data<float>());
  }

 private:
  // The points of x and dy of a group, in panels of kLanes channels, and the sums of their products.
  struct Part {
    Tensor a, b, sums;
    bool used = false;
  };

  // Those of a panel of x at a point.
  [[nodiscard]] std::int64_t products() const { return grid_.points() * grid_.in / kLanes; }

  // The points of the tiles [first, last) of a group.
  void set_points(const Tensor& x, const Tensor& dy, const Tensor& zeros, std::int64_t group, std::int64_t first,
                  std::int64_t last, const Part& to) const {
    const TileGrid& g = grid_;
    const std::int64_t tile = group * g.rows(), panel = g.rows() * kLanes;
    dispatch_activation(x.dtype(), [&](auto pixel) {
      using Pixel = decltype(pixel);
      winograd_patches(g, x.data<Pixel>(), tile + first, tile + last, zeros.data<Pixel>(),
                       {to.a.data<float>() + first * kLanes, kLanes, g.step(g.in), panel});
      winograd_gradients(g, dy.data<Pixel>(), tile + first, tile + last, zeros.data<Pixel>(),
                         {to.b.data<float>() + first * kLanes, kLanes, g.step(g.out), panel});
    });
  }

  // Sets or adds those products of a group.
  void multiply(std::int64_t first, std::int64_t last, bool add, const Part& part) const {
    const TileGrid& g = grid_;
    const std::int64_t depth = g.rows(), panels = g.in / kLanes;
    const auto sums = [&](std::int64_t product) {
      return part.sums.data<float>() + product / panels * winograd_step(g.in * g.out) +
             product % panels * kLanes * g.out;
    };
    for (std::int64_t product = first; product < last; ++product) {
      const std::int64_t point = product / panels;
      const float* a = part.a.data<float>() + point * g.step(g.in) + product % panels * kLanes * depth;
      const float* b = part.b.data<float>() + point * g.step(g.out);
      for (std::int64_t column = 0; column < g.out; column += kOuterColumns) {
        const std::int64_t columns = std::min(kOuterColumns, g.out - column);
        float* c = sums(product) + column;
        const float* next = column + columns < g.out ? c + columns : product + 1 < last ? sums(product + 1) : nullptr;
        outer_product(depth, a, b + column * depth, columns, {c, g.out, add, next});
      }
    }
  }

  static void add(const float* from, std::int64_t count, float* to) {
    parallel_ranges(count, kGrain * kLanes, [=](std::int64_t first, std::int64_t last, int) {
      CONVOY_INDEPENDENT
      for (std::int64_t i = first; i < last; ++i) to[i] += from[i];
    });
  }

  TileGrid grid_;
  std::int64_t groups_;
};

}  // namespace

std::int64_t winograd_side(const Conv2dSpec& s, const Shape& x) {
  if (!s.is_plain() || s.kernel != 3 || s.stride != 1 || s.padding.height > 2) return 0;
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

memory::desc winograd_weights(const Conv2dSpec& s, std::int64_t m, bool backward_input) {
  return backward_input ? planes(winograd_points(m), s.out_channels, s.in_channels)
                        : planes(winograd_points(m), s.in_channels, s.out_channels);
}

std::unique_ptr<Direction> make_winograd(const Conv2dSpec& spec, const Shape& x, std::int64_t m, bool backward_input) {
  return std::make_unique<Winograd>(spec, x, m, backward_input);
}

std::unique_ptr<WeightGradient> make_winograd_gradient(const Conv2dSpec& spec, const Shape& x, std::int64_t m) {
  return std::make_unique<WinogradGradient>(spec, x, m);
}

}  // namespace convoy
