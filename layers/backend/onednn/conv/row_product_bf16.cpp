// SPDX-License-Identifier: Apache-2.0
//
// A kernel keeps kRows x kPanels vectors of sums in registers: 24 of the 32 of AVX-512. Rows that stay in a core's
// second-level cache go through all panels. Meanwhile prefetches bring the next rows and panels to that cache, and the
// lines to be written to the first-level one; oneDNN's kernels do neither.
#include "layers/backend/onednn/conv/row_product_bf16.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kRows = 6, kPanels = 4, kColumns = kPanels * kLanes;
constexpr std::int64_t kBlockBytes = 192 << 10;  // of rows that go through all panels at a time
constexpr std::int64_t kMinRows = 8 * kRows;  // of them, so that panels are worth reading: else threads share columns

// Sets c [rows, panels * kLanes] to a b + bias: a [rows, 2 * pairs], b in panels [pairs, kLanes] of words. bias: null,
// or of these columns. ahead: a panel that is to be read next; it comes to the second-level cache meanwhile.
template <int rows, int panels, class Element>
CONVOY_INLINE void multiply(std::int64_t pairs, const BFloat16* a, const std::uint32_t* b, const float* bias,
                            Element* c, std::int64_t c_step, const std::uint32_t* ahead) {
  Lanes sums[rows][panels] = {};
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) prefetch<Access::kWrite, CacheLevel::kFirst>(c + r * c_step, panels * kLanes);
  for (std::int64_t k = 0; k < pairs; ++k) {
    LaneWords row[panels];
    prefetch<Access::kRead, CacheLevel::kSecond>(ahead + k * kLanes, 1);
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) std::memcpy(&row[p], b + (p * pairs + k) * kLanes, sizeof(row[p]));
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      std::uint32_t pair;
      std::memcpy(&pair, a + 2 * (r * pairs + k), sizeof(pair));
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) add_pair_products(Element(), pair, row[p], sums[r][p]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      if (bias != nullptr) {
        Lanes offset;
        load(bias + p * kLanes, offset);
        sums[r][p] += offset;
      }
      store(sums[r][p], c + r * c_step + p * kLanes);
    }
  }
}

using Kernel = void (*)(std::int64_t pairs, const BFloat16* a, const std::uint32_t* b, const float* bias, BFloat16* c,
                        std::int64_t c_step, const std::uint32_t* ahead);

template <int rows, int panels>
CONVOY_VECTORIZED void kernel(std::int64_t pairs, const BFloat16* a, const std::uint32_t* b, const float* bias,
                              BFloat16* c, std::int64_t c_step, const std::uint32_t* ahead) {
  multiply<rows, panels>(pairs, a, b, bias, c, c_step, ahead);
}

template <int rows, int panels>
CONVOY_NATIVE_BF16 void native_kernel(std::int64_t pairs, const BFloat16* a, const std::uint32_t* b, const float* bias,
                                      BFloat16* c, std::int64_t c_step, const std::uint32_t* ahead) {
  multiply<rows, panels>(pairs, a, b, bias, static_cast<NativeBFloat16*>(c), c_step, ahead);
}

// Those for 1 to kRows rows and this number of panels.
template <int panels, std::size_t... r>
std::array<Kernel, kRows> kernels(std::index_sequence<r...>) {
  if (native_bf16()) return {native_kernel<static_cast<int>(r) + 1, panels>...};
  return {kernel<static_cast<int>(r) + 1, panels>...};
}

// A product [rows, 2 * pairs] by [2 * pairs, columns].
struct Product {
  std::int64_t pairs, columns;
  const std::uint32_t* weight;
  const float* bias;
};

// A part of it: `count` rows of a and c, and these columns. next_rows: whether the rows behind a are the next ones.
struct Part {
  std::int64_t rows, first_column, last_column;
  const BFloat16* a;
  BFloat16* c;
  bool next_rows;
};

void multiply_part(const Product& product, const Part& part) {
  constexpr auto kCounts = std::make_index_sequence<kRows>();
  static const std::array<std::array<Kernel, kRows>, kPanels> kKernels{kernels<1>(kCounts), kernels<2>(kCounts),
                                                                       kernels<3>(kCounts), kernels<4>(kCounts)};
  const std::int64_t pairs = product.pairs;
  for (std::int64_t column = part.first_column; column < part.last_column; column += kColumns) {
    const std::int64_t panels = std::min(kPanels, (part.last_column - column) / kLanes);
    const float* bias = product.bias == nullptr ? nullptr : product.bias + column;
    for (std::int64_t row = 0; row < part.rows; row += kRows) {
      const std::int64_t count = std::min(kRows, part.rows - row);
      const BFloat16* a = part.a + row * 2 * pairs;
      if (part.next_rows && column == part.first_column) {
        prefetch<Access::kRead, CacheLevel::kSecond>(a + count * 2 * pairs, count * 2 * pairs);
      }
      const std::int64_t ahead = std::min(column + kColumns + row / kRows * kLanes, product.columns - kLanes);
      kKernels[static_cast<std::size_t>(panels - 1)][static_cast<std::size_t>(count - 1)](
          pairs, a, product.weight + column * pairs, bias, part.c + row * product.columns + column, product.columns,
          product.weight + ahead * pairs);
    }
  }
}

dnnl::memory::desc weight_format(const Conv2dSpec& spec, bool backward) {
  using Tag = dnnl::memory::format_tag;
  return {{spec.out_channels, spec.in_channels, 1, 1},
          dnnl::memory::data_type::bf16,
          backward ? Tag::IOhw8o16i2o : Tag::OIhw8i16o2i};
}

class RowProductBf16 final : public Direction {
 public:
  RowProductBf16(const Conv2dSpec& spec, bool backward) : Direction(weight_format(spec, backward)), spec_(spec) {
    if (backward) std::swap(spec_.in_channels, spec_.out_channels);
  }

  void run(OnednnState&, Backend& backend, const Tensor& from, void* weight, void* bias, const Tensor& to) override {
    const Im2colShape shapes(spec_, from.shape());
    const std::int64_t rows = shapes.images * shapes.pixels(), depth = shapes.in, columns = shapes.out;
    const Product product{depth / 2, columns, static_cast<const std::uint32_t*>(weight),
                          static_cast<const float*>(bias)};
    const std::int64_t most = kBlockBytes / (depth * std::int64_t{sizeof(BFloat16)});
    const std::int64_t block = std::max(most / kRows * kRows, kMinRows), threads = omp_get_max_threads();
    const Tensor pixels = shapes.gathered() ? backend.tensor({threads, block * depth}, from.dtype()) : Tensor();
    const auto* x = static_cast<const std::byte*>(from.raw());
    auto *y = to.data<BFloat16>(), *gathered = pixels ? pixels.data<BFloat16>() : nullptr;
    const auto multiply = [=](std::int64_t first, std::int64_t last, std::int64_t first_column,
                              std::int64_t last_column, int thread) {
      BFloat16* own = gathered + (gathered == nullptr ? 0 : thread * block * depth);
      for (std::int64_t row = first; row < last; row += block) {
        const std::int64_t some = std::min(block, last - row);
        const auto* a = reinterpret_cast<const BFloat16*>(x) + row * depth;
        if (gathered != nullptr) {
          im2col(shapes, x, row, row + some, sizeof(BFloat16), reinterpret_cast<std::byte*>(own));
          a = own;
        }
        multiply_part(product, {some, first_column, last_column, a, y + row * columns, gathered == nullptr});
      }
    };
    if (rows >= threads * kMinRows) {
      return parallel_ranges(rows, kMinRows, [=](std::int64_t first, std::int64_t last, int thread) {
        multiply(first, last, 0, columns, thread);
      });
    }
    parallel_ranges((columns + kColumns - 1) / kColumns, 1, [=](std::int64_t first, std::int64_t last, int thread) {
      multiply(0, rows, first * kColumns, std::min(last * kColumns, columns), thread);
    });
  }

 private:
  Conv2dSpec spec_;
};

}  // namespace

bool has_row_product_bf16(const Conv2dSpec& s) {
  return s.is_plain() && s.kernel == 1 && s.padding == 0 && s.in_channels % kLanes == 0 && s.out_channels % kLanes == 0;
}

bool by_own_rows_bf16(const OnednnState& state, const Conv2dSpec& spec) {
  return state.products == DType::kBF16 && state.rules.own_rows_bf16 && native_bf16() && has_row_product_bf16(spec);
}

std::unique_ptr<Direction> make_row_product_bf16(const Conv2dSpec& spec, bool backward) {
  return std::make_unique<RowProductBf16>(spec, backward);
}

}  // namespace convoy
