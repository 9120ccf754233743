// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/batch_norm_bf16.h"

#include <algorithm>
#include <type_traits>

#include "layers/backend/onednn/lanes.h"

namespace convoy {

namespace {

constexpr int kColumns = 4;                    // vectors of channels that are summed at a time, in registers
constexpr std::int64_t kBlockElements = 8192;  // whose rows are summed before those behind them

const NativeBFloat16* native(const BFloat16* x) { return static_cast<const NativeBFloat16*>(x); }
NativeBFloat16* native(BFloat16* x) { return static_cast<NativeBFloat16*>(x); }

// Calls sum(first row, rows, first channel, std::integral_constant of vectors) for blocks of rows and their columns. A
// block stays in the first-level cache, and meanwhile the next one is brought to the second.
template <class Sum>
CONVOY_INLINE void for_columns(std::int64_t rows, std::int64_t channels, Sum sum) {
  const std::int64_t some = std::max<std::int64_t>(kBlockElements / channels, 4);
  for (std::int64_t row = 0; row < rows; row += some) {
    const std::int64_t count = std::min(some, rows - row);
    std::int64_t c = 0;
    for (; c + kColumns * kLanes <= channels; c += kColumns * kLanes) {
      sum(row, count, c, std::integral_constant<int, kColumns>());
    }
    for (; c < channels; c += kLanes) sum(row, count, c, std::integral_constant<int, 1>());
  }
}

// Of `vectors` vectors of channels; meanwhile memory brings those of as many rows behind these.
template <int vectors>
CONVOY_INLINE void add_moments(const NativeBFloat16* x, const NativeBFloat16* next, std::int64_t rows,
                               std::int64_t channels, const float* pivot, float* sums, float* squares) {
  Lanes center[vectors], sum[vectors], square[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    load(pivot + v * kLanes, center[v]);
    load(sums + v * kLanes, sum[v]);
    load(squares + v * kLanes, square[v]);
  }
  for (std::int64_t row = 0; row < rows; ++row, x += channels, next += vectors * kLanes) {
    prefetch<Access::kRead, CacheLevel::kSecond>(next, vectors * kLanes);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      Lanes value;
      load(x + v * kLanes, value);
      value -= center[v];
      sum[v] += value;
      square[v] += value * value;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    store(sum[v], sums + v * kLanes);
    store(square[v], squares + v * kLanes);
  }
}

CONVOY_NATIVE_BF16 void moments_kernel(const NativeBFloat16* x, std::int64_t rows, std::int64_t channels,
                                       const float* pivot, float* sums, float* squares) {
  const auto sum = [=](std::int64_t row, std::int64_t count, std::int64_t c, auto vectors)
      __attribute__((always_inline)) {
    const NativeBFloat16* block = x + row * channels;
    add_moments<decltype(vectors)::value>(block + c, block + count * (channels + c), count, channels, pivot + c,
                                          sums + c, squares + c);
  };
  for_columns(rows, channels, sum);
}

enum class Relu { kNone, kPlain, kWithBits };

template <bool kResidual, Relu relu>
CONVOY_NATIVE_BF16 void apply_kernel(const NativeBFloat16* x, const float* scale, const float* shift,
                                     const NativeBFloat16* residual, std::int64_t rows, std::int64_t channels,
                                     NativeBFloat16* y, std::uint16_t* bits) {
  for (std::int64_t row = 0; row < rows; ++row, x += channels, y += channels) {
    for (std::int64_t c = 0; c < channels; c += kLanes) {
      Lanes value, factor, offset;
      load(x + c, value);
      load(scale + c, factor);
      load(shift + c, offset);
      value = value * factor + offset;
      if constexpr (kResidual) {
        Lanes other;
        load(residual + row * channels + c, other);
        value += other;
      }
      if constexpr (relu == Relu::kWithBits) store_positive(NativeBFloat16(), value, bits++);
      if constexpr (relu != Relu::kNone) value = value < 0.0F ? Lanes{} : value;
      store(value, y + c);
    }
  }
}

enum class MaskKind { kNone, kOutput, kBits };

// What the mask lets through of dy at an element.
template <MaskKind kind>
CONVOY_INLINE void load_masked(const NativeBFloat16* dy, const Bf16Mask& mask, std::int64_t at, Lanes& g) {
  if constexpr (kind == MaskKind::kBits) {
    load(dy + at, mask.bits[at / kLanes], g);
  } else {
    load(dy + at, g);
    if constexpr (kind == MaskKind::kOutput) {
      Lanes output;
      load(native(mask.y) + at, output);
      g = output <= 0.0F ? Lanes{} : g;
    }
  }
}

Bf16Mask from(const Bf16Mask& mask, std::int64_t element) {
  return {mask.y != nullptr ? mask.y + element : nullptr,
          mask.bits != nullptr ? mask.bits + element / kLanes : nullptr};
}

// The kernel for a kind of mask.
template <class Kernel>
Kernel choose(const Bf16Mask& mask, Kernel none, Kernel output, Kernel bits) {
  return mask.bits != nullptr ? bits : mask.y != nullptr ? output : none;
}

// Of `vectors` vectors of channels from `first` on.
template <MaskKind kind, int vectors>
CONVOY_INLINE void add_gradients(const NativeBFloat16* dy, const NativeBFloat16* x, const Bf16Mask& mask,
                                 const float* mean, std::int64_t rows, std::int64_t channels, std::int64_t first,
                                 float* sums, float* products) {
  Lanes center[vectors], sum[vectors], product[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    load(mean + first + v * kLanes, center[v]);
    load(sums + first + v * kLanes, sum[v]);
    load(products + first + v * kLanes, product[v]);
  }
  std::int64_t next = rows * (channels + first);
  for (std::int64_t row = 0, at = first; row < rows; ++row, at += channels, next += vectors * kLanes) {
    prefetch<Access::kRead, CacheLevel::kSecond>(x + next, vectors * kLanes);
    prefetch<Access::kRead, CacheLevel::kSecond>(dy + next, vectors * kLanes);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      Lanes g, value;
      load_masked<kind>(dy, mask, at + v * kLanes, g);
      load(x + at + v * kLanes, value);
      sum[v] += g;
      product[v] += g * (value - center[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    store(sum[v], sums + first + v * kLanes);
    store(product[v], products + first + v * kLanes);
  }
}

template <MaskKind kind>
CONVOY_NATIVE_BF16 void gradients_kernel(const NativeBFloat16* dy, const NativeBFloat16* x, Bf16Mask mask,
                                         const float* mean, std::int64_t rows, std::int64_t channels, float* sums,
                                         float* products) {
  const auto sum = [=](std::int64_t row, std::int64_t count, std::int64_t c, auto vectors)
      __attribute__((always_inline)) {
    const std::int64_t at = row * channels;
    add_gradients<kind, decltype(vectors)::value>(dy + at, x + at, from(mask, at), mean, count, channels, c, sums,
                                                  products);
  };
  for_columns(rows, channels, sum);
}

template <MaskKind kind>
CONVOY_NATIVE_BF16 void backward_kernel(const NativeBFloat16* dy, const NativeBFloat16* x, Bf16Mask mask,
                                        const BackwardCoefficients& k, std::int64_t rows, std::int64_t channels,
                                        NativeBFloat16* dx) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = row * channels;
    for (std::int64_t c = 0; c < channels; c += kLanes) {
      Lanes g, value, scale, slope, shift, center;
      load_masked<kind>(dy, mask, first + c, g);
      load(x + first + c, value);
      load(k.scale + c, scale);
      load(k.slope + c, slope);
      load(k.shift + c, shift);
      load(k.mean + c, center);
      store(scale * g + (slope * (value - center) + shift), dx + first + c);
    }
  }
}

template <MaskKind kind>
CONVOY_NATIVE_BF16 void residual_kernel(const NativeBFloat16* dy, Bf16Mask mask, std::int64_t count,
                                        NativeBFloat16* dresidual) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    Lanes g, sum;
    load_masked<kind>(dy, mask, i, g);
    load(dresidual + i, sum);
    store(sum + g, dresidual + i);
  }
}

}  // namespace

bool has_bf16_rows(std::int64_t channels) { return native_bf16() && channels % kLanes == 0; }

void add_moments_bf16(const BFloat16* x, std::int64_t rows, std::int64_t channels, const float* pivot, float* sums,
                      float* squares) {
  moments_kernel(native(x), rows, channels, pivot, sums, squares);
}

void apply_bf16(const BFloat16* x, const float* scale, const float* shift, const BFloat16* residual, bool relu,
                std::int64_t rows, std::int64_t channels, BFloat16* y, std::uint16_t* bits) {
  using enum Relu;
  const auto choose = [=](auto none, auto plain, auto with_bits) {
    return !relu ? none : bits == nullptr ? plain : with_bits;
  };
  const auto kernel =
      residual != nullptr
          ? choose(apply_kernel<true, kNone>, apply_kernel<true, kPlain>, apply_kernel<true, kWithBits>)
          : choose(apply_kernel<false, kNone>, apply_kernel<false, kPlain>, apply_kernel<false, kWithBits>);
  kernel(native(x), scale, shift, native(residual), rows, channels, native(y), bits);
}

void add_gradients_bf16(const BFloat16* dy, const BFloat16* x, const Bf16Mask& mask, const float* mean,
                        std::int64_t rows, std::int64_t channels, float* sums, float* products) {
  using enum MaskKind;
  const auto kernel = choose(mask, gradients_kernel<kNone>, gradients_kernel<kOutput>, gradients_kernel<kBits>);
  kernel(native(dy), native(x), mask, mean, rows, channels, sums, products);
}

void backward_bf16(const BFloat16* dy, const BFloat16* x, const Bf16Mask& mask, const BackwardCoefficients& k,
                   std::int64_t rows, std::int64_t channels, BFloat16* dx) {
  using enum MaskKind;
  const auto kernel = choose(mask, backward_kernel<kNone>, backward_kernel<kOutput>, backward_kernel<kBits>);
  kernel(native(dy), native(x), mask, k, rows, channels, native(dx));
}

void add_residual_bf16(const BFloat16* dy, const Bf16Mask& mask, std::int64_t rows, std::int64_t channels,
                       BFloat16* dresidual) {
  using enum MaskKind;
  const auto kernel = choose(mask, residual_kernel<kNone>, residual_kernel<kOutput>, residual_kernel<kBits>);
  kernel(native(dy), mask, rows * channels, native(dresidual));
}

}  // namespace convoy
