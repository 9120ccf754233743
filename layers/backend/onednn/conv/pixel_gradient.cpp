// SPDX-License-Identifier: Apache-2.0
//
// Some pixels at a time: their channels are put into panels, pixels in pairs, whose products stay in the cache.
// Meanwhile memory brings the next pixels. What a tap sees beyond the edges is left out.
#include "layers/backend/onednn/conv/pixel_gradient.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/conv/pair_product.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/base/error.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kMaxIn = 256;  // channels in panels at a time
constexpr std::int64_t kMaxOut = 512;
constexpr std::int64_t kMinPixels = 256, kMaxPixels = 512;  // at a time
constexpr std::int64_t kPanelBytes = 384 << 10;             // of them, beside dw in the second-level cache

// Where pixels of x and dy lie that meet at a tap.
struct PixelBlock {
  std::int64_t count = 0;
  std::array<const BFloat16*, kMaxPixels + 1> x, dy;  // and a pixel of zeros after an odd number
};

// The pixels of a tap (row, column) in their order.
class TapPixels {
 public:
  TapPixels(const Im2colShape& s, std::int64_t tap, const BFloat16* x, const BFloat16* dy)
      : s_(s),
        x_(x),
        dy_(dy),
        rows_(inside(tap / s.kernel, s.height, s.out_height)),
        columns_(inside(tap % s.kernel, s.width, s.out_width)),
        tap_row_(tap / s.kernel),
        tap_column_(tap % s.kernel),
        row_(rows_.first),
        column_(columns_.first) {
    if (rows_.first >= rows_.last || columns_.first >= columns_.last) image_ = s.images;
  }

  // Sets the next `most` ones; none at the end.
  void next(std::int64_t most, const BFloat16* zeros, PixelBlock& block) {
    block.count = 0;
    while (block.count < most && image_ < s_.images) {
      const std::int64_t h = row_ * s_.stride - s_.padding + tap_row_,
                         w = column_ * s_.stride - s_.padding + tap_column_;
      const auto i = static_cast<std::size_t>(block.count++);
      block.x[i] = x_ + ((image_ * s_.height + h) * s_.width + w) * s_.in;
      block.dy[i] = dy_ + ((image_ * s_.out_height + row_) * s_.out_width + column_) * s_.out;
      if (++column_ < columns_.last) continue;
      column_ = columns_.first;
      if (++row_ < rows_.last) continue;
      row_ = rows_.first;
      ++image_;
    }
    const auto end = static_cast<std::size_t>(block.count);
    block.x[end] = block.dy[end] = zeros;
  }

 private:
  struct Range {
    std::int64_t first, last;
  };
  // Of the output pixels of an axis those whose tap lies within `size` input pixels.
  [[nodiscard]] Range inside(std::int64_t tap, std::int64_t size, std::int64_t out_size) const {
    const std::int64_t before = s_.padding - tap, last = size - 1 + before;  // the first input pixel, and the last
    return {before > 0 ? (before + s_.stride - 1) / s_.stride : 0,
            last < 0 ? 0 : std::min(out_size, last / s_.stride + 1)};
  }

  const Im2colShape& s_;
  const BFloat16 *x_, *dy_;
  Range rows_, columns_;
  std::int64_t tap_row_, tap_column_, image_ = 0, row_, column_;
};

// A range of rows of dw [taps * in, out], in whole vectors, and of its columns, in whole panels.
struct GradientPart {
  std::int64_t row, last_row, column, last_column;
};

// That of a thread: of as many parts as there are threads, so that the largest is small, and where that is so in two
// ways, that the channels of a part are few.
GradientPart part_of(std::int64_t rows, std::int64_t columns, std::int64_t thread, std::int64_t threads) {
  const std::int64_t blocks = rows / kLanes, panels = (columns + kPairColumns - 1) / kPairColumns;
  const auto costs = [&](std::int64_t across) {
    const std::int64_t down = threads / across;
    const std::int64_t high = (blocks + down - 1) / down, wide = (panels + across - 1) / across;
    return std::pair(high * wide, high * kLanes + wide * kPairColumns);
  };
  std::int64_t across = 1;
  for (std::int64_t each = 2; each <= threads; ++each) {
    if (threads % each == 0 && costs(each) < costs(across)) across = each;
  }
  const std::int64_t down = threads / across, i = thread / across, j = thread % across;
  return {blocks * i / down * kLanes, blocks * (i + 1) / down * kLanes, panels * j / across * kPairColumns,
          std::min(panels * (j + 1) / across * kPairColumns, columns)};
}

class PixelGradient final : public WeightGradient {
 public:
  PixelGradient(const Conv2dSpec& spec, const Shape& x) : WeightGradient(im2col_weights(spec)), shapes_(spec, x) {
    const std::int64_t channels = std::min(shapes_.in, kMaxIn) + std::min(shapes_.out, kMaxOut);
    pixels_ = std::clamp(kPanelBytes / (2 * channels), kMinPixels, kMaxPixels) / 2 * 2;
    panel_words_ = pixels_ / 2 * channels;
  }

  void run(OnednnState&, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override {
    if (dbias) fail("a product over pixels gives no gradient of a bias");
    const std::int64_t threads = omp_get_max_threads();
    Tensor zeros = backend.tensor({std::max(shapes_.in, shapes_.out)}, DType::kBF16);
    backend.zero(zeros);
    const Tensor scratch = backend.tensor({threads, panel_words_}, DType::kF32);
    parallel_ranges(threads, 1, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t thread = first; thread < last; ++thread) {
        auto* panels = reinterpret_cast<std::uint32_t*>(scratch.data<float>()) + thread * panel_words_;
        const Pixels pixels{x.data<BFloat16>(), dy.data<BFloat16>(), zeros.data<BFloat16>()};
        GradientPart part = part_of(shapes_.depth(), shapes_.out, thread, threads);
        while (part.row < part.last_row && part.column < part.last_column) {  // the rows of one tap at a time
          const std::int64_t tap = part.row / shapes_.in, end = std::min(part.last_row, (tap + 1) * shapes_.in);
          run_tap(pixels, tap, {part.row - tap * shapes_.in, end - tap * shapes_.in, part.column, part.last_column},
                  panels, dw.data<float>() + tap * shapes_.in * shapes_.out);
          part.row = end;
        }
      }
    });
  }

 private:
  struct Pixels {
    const BFloat16 *x, *dy, *zeros;
  };

  // Sets this part of the tap's dw [in, out].
  void run_tap(const Pixels& data, std::int64_t tap, const GradientPart& part, std::uint32_t* panels, float* dw) const {
    TapPixels pixels(shapes_, tap, data.x, data.dy);
    std::array<PixelBlock, 2> blocks;
    pixels.next(pixels_, data.zeros, blocks[0]);
    if (blocks[0].count == 0) {
      for (std::int64_t row = part.row; row < part.last_row; ++row) {
        std::fill(dw + row * shapes_.out + part.column, dw + row * shapes_.out + part.last_column, 0.0F);
      }
    }
    for (std::size_t n = 0; blocks[n % 2].count > 0; ++n) {
      pixels.next(pixels_, data.zeros, blocks[(n + 1) % 2]);
      add_block(blocks[n % 2], blocks[(n + 1) % 2], part, n > 0, panels, dw);
    }
  }

  void add_block(const PixelBlock& block, const PixelBlock& next, const GradientPart& part, bool add,
                 std::uint32_t* panels, float* dw) const {
    const std::int64_t pairs = (block.count + 1) / 2;
    const std::int64_t kernels =
        (part.last_row - part.row) / kPairRows * ((part.last_column - part.column + kPairColumns - 1) / kPairColumns);
    std::uint32_t* in_panels = panels + pixels_ / 2 * std::min(shapes_.out, kMaxOut);
    std::int64_t done = 0;  // kernels
    for (std::int64_t column = part.column; column < part.last_column; column += kMaxOut) {
      const std::int64_t last_column = std::min(column + kMaxOut, part.last_column);
      pair_panels(block.dy.data(), pairs, column, last_column, kPairColumns, panels);
      for (std::int64_t row = part.row; row < part.last_row; row += kMaxIn) {
        const std::int64_t last_row = std::min(row + kMaxIn, part.last_row);
        pair_panels(block.x.data(), pairs, row, last_row, kLanes, in_panels);
        for (std::int64_t c = column; c < last_column; c += kPairColumns) {
          const std::int64_t width = std::min(kPairColumns, last_column - c);
          for (std::int64_t r = row; r < last_row; r += kPairRows, ++done) {
            const std::int64_t below = std::min(r + kPairRows, last_row - kPairRows);
            for (std::int64_t i = below; i < below + kPairRows; ++i) {
              prefetch<Access::kWrite, CacheLevel::kFirst>(dw + i * shapes_.out + c, width);
            }
            prefetch_pixels(next, part, next.count * done / kernels, next.count * (done + 1) / kernels);
            const std::uint32_t* a = in_panels + (r - row) / kLanes * kLanes * pairs + (r - row) % kLanes;
            const std::uint32_t* b = panels + (c - column) * pairs;
            pair_product(pairs, a, kLanes, b, width, add, dw + r * shapes_.out + c, shapes_.out);
          }
        }
      }
    }
  }

  // The channels of pixels [first, last) of a block.
  static void prefetch_pixels(const PixelBlock& block, const GradientPart& part, std::int64_t first,
                              std::int64_t last) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      prefetch<Access::kRead, CacheLevel::kSecond>(block.x[i] + part.row, part.last_row - part.row);
      prefetch<Access::kRead, CacheLevel::kSecond>(block.dy[i] + part.column, part.last_column - part.column);
    }
  }

  Im2colShape shapes_;
  std::int64_t pixels_, panel_words_;  // pixels at a time, and what all panels of a thread have
};

}  // namespace

std::unique_ptr<WeightGradient> make_pixel_gradient(const Conv2dSpec& spec, const Shape& x) {
  return std::make_unique<PixelGradient>(spec, x);
}

}  // namespace convoy
