// SPDX-License-Identifier: Apache-2.0
//
// The sums over rows that batch norm takes of every channel, some channels at a time in registers; for kernels that are
// compiled for several instruction sets (vectorized.h). Private to layers/backend/onednn.
#pragma once

#include <algorithm>
#include <cstdint>

#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/vectorized.h"

namespace convoy {

constexpr int kSumVectors = 4;                     // of channels at a time
constexpr std::int64_t kSumBlockBytes = 16 << 10;  // of rows that are summed before those behind them

// Calls f(first channel, VectorWidth of a vector, VectorWidth of how many) for all channels.
template <int width, class F>
CONVOY_INLINE void for_vectors(std::int64_t channels, F f) {
  std::int64_t c = 0;
  for (; c + kSumVectors * width <= channels; c += kSumVectors * width)
    f(c, VectorWidth<width>(), VectorWidth<kSumVectors>());
  for (; c + width <= channels; c += width) f(c, VectorWidth<width>(), VectorWidth<1>());
  if constexpr (width > 4) {
    for (; c + 4 <= channels; c += 4) f(c, VectorWidth<4>(), VectorWidth<1>());
  }
  for (; c < channels; ++c) f(c, VectorWidth<1>(), VectorWidth<1>());
}

// Calls sum(first row, last row, first channel, VectorWidth of a vector, VectorWidth of how many) for blocks of the
// rows [first, last) and their channels. A block of up to 1024 channels stays in the first-level cache, and meanwhile
// the next one is brought to the second.
template <int width, class Pixel, class Sum>
CONVOY_INLINE void for_columns(std::int64_t first, std::int64_t last, std::int64_t channels, Sum sum) {
  const std::int64_t some = std::max(kSumBlockBytes / (channels * std::int64_t{sizeof(Pixel)}), std::int64_t{4});
  for (std::int64_t row = first; row < last; row += some) {
    const std::int64_t end = std::min(row + some, last);
    const auto sum_block = [=](auto c, auto lanes, auto vectors)
                               CONVOY_INLINE_LAMBDA { sum(row, end, c, lanes, vectors); };
    for_vectors<width>(channels, sum_block);
  }
}

// Where in the block behind rows [first, last) that share begins which the columns from c on prefetch.
CONVOY_INLINE std::int64_t share_of_next(std::int64_t first, std::int64_t last, std::int64_t channels, std::int64_t c) {
  return last * channels + (last - first) * c;
}

// add_moments() of `vectors` vectors of channels from c on.
template <int width, int vectors, class Pixel>
CONVOY_INLINE void add_some_moments(const Pixel* x, std::int64_t first, std::int64_t last, std::int64_t channels,
                                    std::int64_t c, const float* pivot, float* sums, float* squares) {
  using Floats = Vector<float, width>;
  Floats center[vectors], sum[vectors], square[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    load(pivot + c + v * width, center[v]);
    load(sums + c + v * width, sum[v]);
    load(squares + c + v * width, square[v]);
  }
  const Pixel* next = x + share_of_next(first, last, channels, c);
  for (std::int64_t row = first; row < last; ++row, next += vectors * width) {
    prefetch<Access::kRead, CacheLevel::kSecond>(next, vectors * width);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      Floats value;
      load(x + row * channels + c + v * width, value);
      value -= center[v];
      sum[v] += value;
      square[v] += value * value;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    store(sum[v], sums + c + v * width);
    store(square[v], squares + c + v * width);
  }
}

/// Adds to sums and squares [channels] those of x - pivot over x [rows, channels].
template <int width, class Pixel>
CONVOY_INLINE void add_moments(const Pixel* x, std::int64_t rows, std::int64_t channels, const float* pivot,
                               float* sums, float* squares) {
  const auto add = [=](auto begin, auto end, auto c, auto some, auto vectors) CONVOY_INLINE_LAMBDA {
    add_some_moments<some, vectors>(x, begin, end, channels, c, pivot, sums, squares);
  };
  for_columns<width, Pixel>(0, rows, channels, add);
}

// add_gradients() of `vectors` vectors of channels from c on.
template <int width, int vectors, class Pixel, class Mask>
CONVOY_INLINE void add_some_gradients(const Pixel* dy, const Pixel* x, const Mask& mask, const float* mean,
                                      std::int64_t first, std::int64_t last, std::int64_t channels, std::int64_t c,
                                      float* sums, float* products) {
  using Floats = Vector<float, width>;
  Floats center[vectors], sum[vectors], product[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    load(mean + c + v * width, center[v]);
    load(sums + c + v * width, sum[v]);
    load(products + c + v * width, product[v]);
  }
  std::int64_t next = share_of_next(first, last, channels, c);
  for (std::int64_t row = first; row < last; ++row, next += vectors * width) {
    prefetch<Access::kRead, CacheLevel::kSecond>(x + next, vectors * width);
    prefetch<Access::kRead, CacheLevel::kSecond>(dy + next, vectors * width);
    const std::int64_t at = row * channels + c;
    Floats g[vectors];
    mask.template load_masked<vectors>(dy + at, row, c, g);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      Floats value;
      load(x + at + v * width, value);
      sum[v] += g[v];
      product[v] += g[v] * (value - center[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    store(sum[v], sums + c + v * width);
    store(product[v], products + c + v * width);
  }
}

/// For g, which is what the mask lets through of dy [rows, channels], adds to sums [channels] those of g, to products
/// those of g * (x - mean), over rows [first, last).
template <int width, class Pixel, class Mask>
CONVOY_INLINE void add_gradients(const Pixel* dy, const Pixel* x, Mask mask, const float* mean, std::int64_t first,
                                 std::int64_t last, std::int64_t channels, float* sums, float* products) {
  const auto add = [=](auto begin, auto end, auto c, auto some, auto vectors) CONVOY_INLINE_LAMBDA {
    add_some_gradients<some, vectors>(dy, x, mask, mean, begin, end, channels, c, sums, products);
  };
  for_columns<width, Pixel>(first, last, channels, add);
}

}  // namespace convoy
