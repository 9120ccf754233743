// SPDX-License-Identifier: Apache-2.0
//
// Some pixels at a time: their channels are put into panels, those of bfloat16 in pairs of pixels, whose products stay
// in the cache. Meanwhile memory brings the next pixels. What a tap sees beyond the edges is left out.
#include "layers/backend/onednn/conv/pixel_gradient.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/conv/outer_product.h"
#include "layers/backend/onednn/conv/pair_product.h"
#include "layers/backend/onednn/conv/pointwise_conv2d.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/base/error.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kMostPixels = 512;  // of any kind of panels

// How bfloat16 channels are put into panels and multiplied. The sizes are for second-level caches of 1 MiB and more.
struct PairPanels {
  using Pixel = BFloat16;
  using Word = std::uint32_t;                                                // of a channel of kPixels pixels
  static constexpr std::int64_t kPixels = 2;                                 // that go together
  static constexpr std::int64_t kMaxIn = 256, kMaxOut = 512;                 // channels in panels at a time
  static constexpr std::int64_t kMinPixels = 256, kMaxPixels = kMostPixels;  // at a time
  static constexpr std::int64_t kPanelBytes = 384 << 10;                     // of them, beside dw in the cache
  static constexpr std::int64_t kRows = kPairRows, kColumns = kPairColumns;  // of a product
  static constexpr std::int64_t kPart = 1 << 20;  // rows and columns of dw to which all pixels are added at a time: all
  static constexpr bool kFillsOnTheWay = true;    // a panel is filled while others are multiplied
};

// The same of float32, for those of 512 KiB.
struct FloatPanels {
  using Pixel = float;
  using Word = float;
  static constexpr std::int64_t kPixels = 1;
  static constexpr std::int64_t kMaxIn = 128, kMaxOut = 512;
  static constexpr std::int64_t kMinPixels = 128, kMaxPixels = 192;
  static constexpr std::int64_t kPanelBytes = 256 << 10;
  static constexpr std::int64_t kRows = kLanes, kColumns = kLanes;  // with kOuterColumns no faster
  static constexpr std::int64_t kPart = 512;
  static constexpr bool kFillsOnTheWay = false;
};

// Where pixels of x and dy lie that meet at a tap; behind them pixels of zeros.
template <class Pixel>
struct PixelBlock {
  std::int64_t count = 0;
  std::array<const Pixel*, kMostPixels + 1> x, dy;
};

// The pixels of a tap (row, column) in their order.
template <class Pixel>
class TapPixels {
 public:
  TapPixels(const Im2colShape& s, std::int64_t tap, const Pixel* x, const Pixel* dy)
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
  void next(std::int64_t most, const Pixel* zeros, PixelBlock<Pixel>& block) {
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
    std::fill(block.x.begin() + block.count, block.x.end(), zeros);
    std::fill(block.dy.begin() + block.count, block.dy.end(), zeros);
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
  const Pixel *x_, *dy_;
  Range rows_, columns_;
  std::int64_t tap_row_, tap_column_, image_ = 0, row_, column_;
};

// A range of rows of dw [taps * in, out], in whole vectors, and of its columns, in whole panels.
struct GradientPart {
  std::int64_t row, last_row, column, last_column;
};

// That of a thread: of as many parts as there are threads, so that the largest is small, and where that is so in two
// ways, that the channels of a part are few.
GradientPart part_of(std::int64_t rows, std::int64_t columns, std::int64_t panel, std::int64_t thread,
                     std::int64_t threads) {
  const std::int64_t blocks = rows / kLanes, panels = (columns + panel - 1) / panel;
  const auto costs = [&](std::int64_t across) {
    const std::int64_t down = threads / across;
    const std::int64_t high = (blocks + down - 1) / down, wide = (panels + across - 1) / across;
    return std::pair(high * wide, high * kLanes + wide * panel);
  };
  std::int64_t across = 1;
  for (std::int64_t each = 2; each <= threads; ++each) {
    if (threads % each == 0 && costs(each) < costs(across)) across = each;
  }
  const std::int64_t down = threads / across, i = thread / across, j = thread % across;
  return {blocks * i / down * kLanes, blocks * (i + 1) / down * kLanes, panels * j / across * panel,
          std::min(panels * (j + 1) / across * panel, columns)};
}

template <class Panels>
class PixelGradient final : public WeightGradient {
 public:
  PixelGradient(const Conv2dSpec& spec, const Shape& x) : WeightGradient(im2col_weights(spec)), shapes_(spec, x) {
    const std::int64_t channels = std::min(shapes_.in, Panels::kMaxIn) + std::min(shapes_.out, Panels::kMaxOut);
    const std::int64_t pixel_bytes = channels * std::int64_t{sizeof(Pixel)};
    pixels_ = std::clamp(Panels::kPanelBytes / pixel_bytes, Panels::kMinPixels, Panels::kMaxPixels) / 2 * 2;
    panel_words_ = pixels_ / Panels::kPixels * channels;
  }

  void run(OnednnState&, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override {
    if (dbias) fail("a product over pixels gives no gradient of a bias");
    const std::int64_t threads = omp_get_max_threads();
    Tensor zeros = backend.tensor({std::max(shapes_.in, shapes_.out)}, x.dtype());
    backend.zero(zeros);
    const Tensor scratch = backend.tensor({threads, panel_words_}, DType::kF32);
    parallel_ranges(threads, 1, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t thread = first; thread < last; ++thread) {
        auto* panels = reinterpret_cast<Word*>(scratch.data<float>()) + thread * panel_words_;
        const Pixels pixels{x.data<Pixel>(), dy.data<Pixel>(), zeros.data<Pixel>()};
        GradientPart part = part_of(shapes_.depth(), shapes_.out, Panels::kColumns, thread, threads);
        while (part.row < part.last_row && part.column < part.last_column) {  // some rows of one tap at a time
          const std::int64_t tap = part.row / shapes_.in, row = part.row - tap * shapes_.in;
          const std::int64_t end = std::min({part.last_row - tap * shapes_.in, shapes_.in, row + Panels::kPart});
          for (std::int64_t column = part.column; column < part.last_column; column += Panels::kPart) {
            run_tap(pixels, tap, {row, end, column, std::min(column + Panels::kPart, part.last_column)}, panels,
                    dw.data<float>() + tap * shapes_.in * shapes_.out);
          }
          part.row = tap * shapes_.in + end;
        }
      }
    });
  }

 private:
  using Pixel = typename Panels::Pixel;
  using Word = typename Panels::Word;
  using Block = PixelBlock<Pixel>;
  static_assert(sizeof(Word) == sizeof(float));

  struct Pixels {
    const Pixel *x, *dy, *zeros;
  };

  // Sets this part of the tap's dw [in, out].
  void run_tap(const Pixels& data, std::int64_t tap, const GradientPart& part, Word* panels, float* dw) const {
    TapPixels<Pixel> pixels(shapes_, tap, data.x, data.dy);
    std::array<Block, 2> blocks;
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

  void add_block(const Block& block, const Block& next, const GradientPart& part, bool add, Word* panels,
                 float* dw) const {
    const std::int64_t count = (block.count + Panels::kPixels - 1) / Panels::kPixels;
    const std::int64_t kernels = (part.last_row - part.row) / Panels::kRows *
                                 ((part.last_column - part.column + Panels::kColumns - 1) / Panels::kColumns);
    Word* in_panels = panels + pixels_ / Panels::kPixels * std::min(shapes_.out, Panels::kMaxOut);
    std::int64_t done = 0;  // kernels
    for (std::int64_t column = part.column; column < part.last_column; column += Panels::kMaxOut) {
      const std::int64_t last_column = std::min(column + Panels::kMaxOut, part.last_column);
      if constexpr (!Panels::kFillsOnTheWay) column_panels(block.dy.data(), count, column, last_column, panels);
      for (std::int64_t row = part.row; row < part.last_row; row += Panels::kMaxIn) {
        const std::int64_t last_row = std::min(row + Panels::kMaxIn, part.last_row);
        if constexpr (Panels::kFillsOnTheWay) {
          pair_panel({block.x.data(), row}, count, in_panels);
        } else {
          column_panels(block.x.data(), count, row, last_row, in_panels);
        }
        for (std::int64_t c = column; c < last_column; c += Panels::kColumns) {
          const std::int64_t width = std::min(Panels::kColumns, last_column - c);
          for (std::int64_t r = row; r < last_row; r += Panels::kRows, ++done) {
            float* below = dw + std::min(r + Panels::kRows, last_row - Panels::kRows) * shapes_.out + c;
            Word *a_panel = in_panels + (r - row) / kLanes * kLanes * count, *b = panels + (c - column) * count;
            const Word* a = a_panel + (r - row) % kLanes;
            float* to = dw + r * shapes_.out + c;
            if constexpr (Panels::kFillsOnTheWay) {
              for (std::int64_t i = 0; i < Panels::kRows; ++i) {
                prefetch<Access::kWrite, CacheLevel::kFirst>(below + i * shapes_.out, width);
              }
              PairFill fill;
              if (row == part.row && r == row) fill.b = {block.dy.data(), c};
              if (c == column && a == a_panel && r + kLanes < last_row) {
                fill.next_a = {block.x.data(), r + kLanes};
                fill.next_a_panel = a_panel + kLanes * count;
              }
              if (next.count > 0) fill.ahead = line_ahead(next, part, done, kernels);
              pair_product(count, a, b, width, add, to, shapes_.out, fill);
            } else {
              prefetch_pixels(next, part, next.count * done / kernels, next.count * (done + 1) / kernels);
              outer_product(count, a, b, width, {to, shapes_.out, add, below});
            }
          }
        }
      }
    }
  }

  // What kernel `done` of a block brings of the next one: a line of all even or all odd pixels, or nothing.
  static PairSource line_ahead(const Block& next, const GradientPart& part, std::int64_t done, std::int64_t kernels) {
    constexpr std::int64_t line = 64 / std::int64_t{sizeof(Pixel)};
    const std::int64_t x_lines = (part.last_row - part.row + line - 1) / line;
    const std::int64_t dy_lines = (part.last_column - part.column + line - 1) / line;
    const std::int64_t all = 2 * (x_lines + dy_lines), first = all * done / kernels;
    if (all * (done + 1) / kernels == first) return {};
    const std::int64_t odd = first % 2, n = first / 2;
    if (n < x_lines) return {next.x.data() + odd, part.row + n * line};
    return {next.dy.data() + odd, part.column + (n - x_lines) * line};
  }

  // The channels of pixels [first, last) of a block.
  static void prefetch_pixels(const Block& block, const GradientPart& part, std::int64_t first, std::int64_t last) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      prefetch<Access::kRead, CacheLevel::kSecond>(block.x[i] + part.row, part.last_row - part.row);
      prefetch<Access::kRead, CacheLevel::kSecond>(block.dy[i] + part.column, part.last_column - part.column);
    }
  }

  Im2colShape shapes_;
  std::int64_t pixels_, panel_words_;  // pixels at a time, and what all panels of a thread have
};

// dw [in, out], or dw [out, in] as the one of x for dy.
class RowGradient final : public WeightGradient {
 public:
  RowGradient(std::int64_t rows, std::int64_t in, std::int64_t out, bool by_inputs)
      : WeightGradient({{out, in},
                        dnnl::memory::data_type::f32,
                        by_inputs ? dnnl::memory::format_tag::ba : dnnl::memory::format_tag::ab}),
        by_inputs_(by_inputs),
        gradient_(by_inputs ? pointwise_spec(in, out) : pointwise_spec(out, in),
                  Shape{rows, by_inputs ? in : out, 1, 1}) {}

  void run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override {
    gradient_.run(state, backend, by_inputs_ ? x : dy, by_inputs_ ? dy : x, dw, dbias);
  }

 private:
  bool by_inputs_;
  PixelGradient<FloatPanels> gradient_;
};

}  // namespace

bool has_pixel_gradient(const Conv2dSpec& s) {
  return s.is_plain() && s.in_channels % kLanes == 0 && s.out_channels % kLanes == 0;
}

std::unique_ptr<WeightGradient> make_pixel_gradient(const Conv2dSpec& spec, const Shape& x, DType dtype) {
  if (dtype == DType::kBF16) return std::make_unique<PixelGradient<PairPanels>>(spec, x);
  return std::make_unique<PixelGradient<FloatPanels>>(spec, x);
}

std::unique_ptr<WeightGradient> make_row_gradient(std::int64_t rows, std::int64_t in, std::int64_t out,
                                                  bool by_inputs) {
  return std::make_unique<RowGradient>(rows, in, out, by_inputs);
}

}  // namespace convoy
