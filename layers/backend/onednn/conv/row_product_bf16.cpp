// SPDX-License-Identifier: Apache-2.0
//
// A kernel keeps kRows x kPanels vectors of sums in registers: 24 of the 32 of AVX-512. Rows that stay in a core's
// second-level cache go through all panels; meanwhile the next rows are brought to it, and what is written to the
// first-level cache: oneDNN's kernels do neither.
#include "layers/backend/onednn/conv/row_product_bf16.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kRows = 6, kPanels = 4;
constexpr std::int64_t kBlockBytes = 192 << 10;  // of rows that go through all panels at a time
constexpr std::int64_t kMinRows = 8 * kRows;     // of them, so that panels are worth reading

// Sets c [rows, panels * kLanes] to a b + bias: a [rows, pairs] of words, b in panels [pairs, kLanes] of words.
// bias: null, or of these columns.
template <int rows, int panels, class Element>
CONVOY_INLINE void multiply(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, const float* bias,
                            Element* c, std::int64_t c_step) {
  Lanes sums[rows][panels] = {};
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) prefetch<Access::kWrite, CacheLevel::kFirst>(c + r * c_step, panels * kLanes);
  for (std::int64_t k = 0; k < pairs; ++k) {
    LaneWords row[panels];
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) std::memcpy(&row[p], b + (p * pairs + k) * kLanes, sizeof(row[p]));
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) add_pair_products(Element(), a[r * pairs + k], row[p], sums[r][p]);
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

using Kernel = void (*)(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, const float* bias,
                        BFloat16* c, std::int64_t c_step);

template <int rows, int panels>
CONVOY_VECTORIZED void kernel(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, const float* bias,
                              BFloat16* c, std::int64_t c_step) {
  multiply<rows, panels>(pairs, a, b, bias, c, c_step);
}

template <int rows, int panels>
CONVOY_NATIVE_BF16 void native_kernel(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b,
                                      const float* bias, BFloat16* c, std::int64_t c_step) {
  multiply<rows, panels>(pairs, a, b, bias, static_cast<NativeBFloat16*>(c), c_step);
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

// rows: of words. The rows behind them are read next.
void multiply_rows(const Product& product, std::int64_t rows, const std::uint32_t* a, BFloat16* c) {
  constexpr auto kCounts = std::make_index_sequence<kRows>();
  static const std::array<std::array<Kernel, kRows>, kPanels> kKernels{kernels<1>(kCounts), kernels<2>(kCounts),
                                                                       kernels<3>(kCounts), kernels<4>(kCounts)};
  const std::int64_t pairs = product.pairs, columns = product.columns;
  for (std::int64_t column = 0; column < columns; column += kPanels * kLanes) {
    const std::int64_t panels = std::min(kPanels, (columns - column) / kLanes);
    const float* bias = product.bias == nullptr ? nullptr : product.bias + column;
    for (std::int64_t row = 0; row < rows; row += kRows) {
      const std::int64_t count = std::min(kRows, rows - row);
      if (column == 0) prefetch<Access::kRead, CacheLevel::kSecond>(a + (row + count) * pairs, count * pairs);
      kKernels[static_cast<std::size_t>(panels - 1)][static_cast<std::size_t>(count - 1)](
          pairs, a + row * pairs, product.weight + column * pairs, bias, c + row * columns + column, columns);
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

  void run(OnednnState&, Backend&, const Tensor& from, void* weight, void* bias, const Tensor& to) override {
    const Im2colShape shapes(spec_, from.shape());
    const std::int64_t pairs = shapes.in / 2, columns = shapes.out;
    const Product product{pairs, columns, static_cast<const std::uint32_t*>(weight), static_cast<const float*>(bias)};
    const auto* x = static_cast<const std::byte*>(from.raw());
    auto* y = to.data<BFloat16>();
    const std::int64_t most = kBlockBytes / (pairs * std::int64_t{sizeof(std::uint32_t)});
    const std::int64_t block = std::max(most / kRows * kRows, kMinRows);
    parallel_ranges(shapes.images * shapes.pixels(), kMinRows, [&](std::int64_t first, std::int64_t last, int) {
      std::vector<std::uint32_t> gathered(static_cast<std::size_t>(shapes.gathered() ? block * pairs : 0));
      for (std::int64_t row = first; row < last; row += block) {
        const std::int64_t rows = std::min(block, last - row);
        const auto* words = reinterpret_cast<const std::uint32_t*>(x) + row * pairs;
        if (shapes.gathered()) {
          im2col(shapes, x, row, row + rows, sizeof(BFloat16), reinterpret_cast<std::byte*>(gathered.data()));
          words = gathered.data();
        }
        multiply_rows(product, rows, words, y + row * columns);
      }
    });
  }

 private:
  Conv2dSpec spec_;
};

}  // namespace

bool has_row_product_bf16(const Conv2dSpec& s) {
  return s.is_plain() && s.kernel == 1 && s.padding == 0 && s.in_channels % kLanes == 0 && s.out_channels % kLanes == 0;
}

std::unique_ptr<Direction> make_row_product_bf16(const Conv2dSpec& spec, bool backward) {
  return std::make_unique<RowProductBf16>(spec, backward);
}

}  // namespace convoy
