// SPDX-License-Identifier: Apache-2.0
//
// Points stay in the second-level cache from their transform through the product to the next transform: those of some
// tiles of a thread.
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
    const std::int64_t thread_elements = (g.points() + 1 + kStepsApart) * step_ + g.out, all = g.all_tiles();
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

// A thread takes tiles of its own through transforms and products, some at a time, so that no points go from one core's
// cache to another's, and adds up sums of its own. Where these are large, or tiles few, all threads take the same tiles
// together.
class WinogradGradient final : public WeightGradient {
 public:
  WinogradGradient(const Conv2dSpec& spec, const Shape& x, std::int64_t m)
      : WeightGradient(im2col_weights(spec)),
        grid_(spec, x, m, false),
        most_(std::min(grid_.gradient_tiles(), grid_.all_tiles())),
        a_step_(winograd_step(most_ * grid_.in)),
        b_step_(winograd_step(most_ * grid_.out)),
        sum_step_(winograd_step(grid_.in * grid_.out)) {}

  void run(OnednnState&, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override {
    if (dbias) fail("Winograd's weight gradient gives no gradient of a bias");
    const TileGrid& g = grid_;
    const std::int64_t sums = g.points() * sum_step_, all = g.all_tiles();
    const bool apart = sums * std::int64_t{sizeof(float)} <= kThreadSumsBytes;
    const std::int64_t threads = apart ? std::clamp<std::int64_t>(all / most_, 1, omp_get_max_threads()) : 1;
    const Pixels pixels{x, dy, zero_pixel(backend, std::max(g.in, g.out), x.dtype())};
    std::vector<Part> parts(static_cast<std::size_t>(threads));
    for (Part& part : parts) {
      part.a = backend.tensor({g.points() * a_step_}, DType::kF32);
      part.b = backend.tensor({g.points() * b_step_}, DType::kF32);
      part.sums = backend.tensor({sums}, DType::kF32);
    }
    if (threads == 1) {
      for_groups(0, all, [&](const Group& group) {
        parallel_ranges(group.tiles, kGrain, [&](std::int64_t first, std::int64_t last, int) {
          set_points(pixels, group, first, last, parts[0]);
        });
        parallel_ranges(products(), 1,
                        [&](std::int64_t first, std::int64_t last, int) { multiply(group, first, last, parts[0]); });
      });
    } else {
      parallel_ranges(threads, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const Part& part = parts[static_cast<std::size_t>(i)];
          for_groups(all * i / threads, all * (i + 1) / threads, [&](const Group& group) {
            set_points(pixels, group, 0, group.tiles, part);
            multiply(group, 0, products(), part);
          });
        }
      });
    }
    auto* total = parts[0].sums.data<float>();
    for (std::size_t i = 1; i < parts.size(); ++i) add_sums(parts[i].sums.data<float>(), sums, total);
    winograd_weight_gradient(g.side, total, g.in * g.out, dw.data<float>());
  }

 private:
  struct Pixels {
    const Tensor &x, &dy;
    Tensor zeros;
  };
  // The points of x and dy of some tiles, in panels of kLanes channels, and the sums of their products.
  struct Part {
    Tensor a, b, sums;
  };
  // The tiles that go together; the products of the first ones set the sums, the others are added.
  struct Group {
    std::int64_t first, tiles;
    bool add;
  };

  // Calls f for the tiles [first, last) in groups of nearly equal size.
  template <class F>
  void for_groups(std::int64_t first, std::int64_t last, const F& f) const {
    const std::int64_t count = last - first, groups = (count + most_ - 1) / most_;
    for (std::int64_t i = 0; i < groups; ++i) {
      const std::int64_t begin = count * i / groups;
      f(Group{first + begin, count * (i + 1) / groups - begin, i > 0});
    }
  }

  // What threads share: each point of each panel of x with all panels of dy.
  [[nodiscard]] std::int64_t products() const { return grid_.points() * (grid_.in / kLanes); }

  // Sets the points of the tiles [first, last) of a group.
  void set_points(const Pixels& from, const Group& group, std::int64_t first, std::int64_t last, const Part& to) const {
    const TileGrid& g = grid_;
    const std::int64_t begin = group.first + first, end = group.first + last, panel = group.tiles * kLanes;
    dispatch_activation(from.x.dtype(), [&](auto pixel) {
      using Pixel = decltype(pixel);
      const auto* zeros = from.zeros.data<Pixel>();
      winograd_patches(g, from.x.data<Pixel>(), begin, end, zeros,
                       {to.a.data<float>() + first * kLanes, kLanes, a_step_, panel});
      winograd_gradients(g, from.dy.data<Pixel>(), begin, end, zeros,
                         {to.b.data<float>() + first * kLanes, kLanes, b_step_, panel});
    });
  }

  // Sets the products [first, last) of a group, or adds them.
  void multiply(const Group& group, std::int64_t first, std::int64_t last, const Part& part) const {
    const std::int64_t out = grid_.out, depth = group.tiles, panels = grid_.in / kLanes;
    const auto sums_of = [&](std::int64_t product) {
      return part.sums.data<float>() + product / panels * sum_step_ + product % panels * kLanes * out;
    };
    for (std::int64_t product = first; product < last; ++product) {
      const std::int64_t point = product / panels;
      const float* a = part.a.data<float>() + point * a_step_ + product % panels * kLanes * depth;
      const float* b = part.b.data<float>() + point * b_step_;
      float* sums = sums_of(product);
      for (std::int64_t column = 0; column < out; column += kOuterColumns) {
        const std::int64_t columns = std::min(kOuterColumns, out - column);
        float* c = sums + column;
        const float* next = column + columns < out ? c + columns : product + 1 < last ? sums_of(product + 1) : nullptr;
        outer_product(depth, a, b + column * depth, columns, {c, out, group.add, next});
      }
    }
  }

  static void add_sums(const float* from, std::int64_t count, float* to) {
    parallel_ranges(count, kGrain * kLanes, [=](std::int64_t first, std::int64_t last, int) {
      CONVOY_INDEPENDENT
      for (std::int64_t i = first; i < last; ++i) to[i] += from[i];
    });
  }

  TileGrid grid_;
  std::int64_t most_;  // tiles at a time
  std::int64_t a_step_, b_step_, sum_step_;
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
