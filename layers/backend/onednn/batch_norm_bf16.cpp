// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/batch_norm_bf16.h"

#include "layers/backend/onednn/lanes.h"

namespace convoy {

namespace {

constexpr int kRowsTogether = 4;  // sums go through the first-level cache once for so many rows

const NativeBFloat16* native(const BFloat16* x) { return static_cast<const NativeBFloat16*>(x); }
NativeBFloat16* native(BFloat16* x) { return static_cast<NativeBFloat16*>(x); }

template <int count>
CONVOY_INLINE void add_moments(const NativeBFloat16* x, std::int64_t channels, const float* pivot, float* sums,
                               float* squares) {
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    Lanes center, sum, square;
    load(pivot + c, center);
    load(sums + c, sum);
    load(squares + c, square);
    for (int row = 0; row < count; ++row) {
      const NativeBFloat16* at = x + row * channels + c;
      __builtin_prefetch(at + count * channels);  // rows are too short for the processor to read ahead in each
      Lanes value;
      load(at, value);
      value -= center;
      sum += value;
      square += value * value;
    }
    store(sum, sums + c);
    store(square, squares + c);
  }
}

CONVOY_NATIVE_BF16 void moments_kernel(const NativeBFloat16* x, std::int64_t rows, std::int64_t channels,
                                       const float* pivot, float* sums, float* squares) {
  std::int64_t row = 0;
  for (; row + kRowsTogether <= rows; row += kRowsTogether) {
    add_moments<kRowsTogether>(x + row * channels, channels, pivot, sums, squares);
  }
  for (; row < rows; ++row) add_moments<1>(x + row * channels, channels, pivot, sums, squares);
}

template <bool kResidual, bool kRelu>
CONVOY_NATIVE_BF16 void apply_kernel(const NativeBFloat16* x, const float* scale, const float* shift,
                                     const NativeBFloat16* residual, std::int64_t rows, std::int64_t channels,
                                     NativeBFloat16* y) {
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
      if constexpr (kRelu) value = value < 0.0F ? Lanes{} : value;
      store(value, y + c);
    }
  }
}

// What the mask y, if there is one, lets through of dy, at an element.
template <bool kMask>
CONVOY_INLINE void load_masked(const NativeBFloat16* dy, const NativeBFloat16* y, std::int64_t at, Lanes& g) {
  load(dy + at, g);
  if constexpr (kMask) {
    Lanes output;
    load(y + at, output);
    g = output <= 0.0F ? Lanes{} : g;
  }
}

// Row by row: three arrays at once are as many as the processor reads ahead.
template <bool kMask>
CONVOY_NATIVE_BF16 void gradients_kernel(const NativeBFloat16* dy, const NativeBFloat16* x, const NativeBFloat16* y,
                                         const float* mean, std::int64_t rows, std::int64_t channels, float* sums,
                                         float* products) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = row * channels;
    for (std::int64_t c = 0; c < channels; c += kLanes) {
      Lanes g, value, center, sum, product;
      load_masked<kMask>(dy, y, first + c, g);
      load(x + first + c, value);
      load(mean + c, center);
      load(sums + c, sum);
      load(products + c, product);
      store(sum + g, sums + c);
      store(product + g * (value - center), products + c);
    }
  }
}

template <bool kMask>
CONVOY_NATIVE_BF16 void backward_kernel(const NativeBFloat16* dy, const NativeBFloat16* x, const NativeBFloat16* y,
                                        const BackwardCoefficients& k, std::int64_t rows, std::int64_t channels,
                                        NativeBFloat16* dx) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = row * channels;
    for (std::int64_t c = 0; c < channels; c += kLanes) {
      Lanes g, value, scale, slope, shift, center;
      load_masked<kMask>(dy, y, first + c, g);
      load(x + first + c, value);
      load(k.scale + c, scale);
      load(k.slope + c, slope);
      load(k.shift + c, shift);
      load(k.mean + c, center);
      store(scale * g + (slope * (value - center) + shift), dx + first + c);
    }
  }
}

template <bool kMask>
CONVOY_NATIVE_BF16 void residual_kernel(const NativeBFloat16* dy, const NativeBFloat16* y, std::int64_t count,
                                        NativeBFloat16* dresidual) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    Lanes g, sum;
    load_masked<kMask>(dy, y, i, g);
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
                std::int64_t rows, std::int64_t channels, BFloat16* y) {
  const auto kernel = residual != nullptr ? (relu ? apply_kernel<true, true> : apply_kernel<true, false>)
                                          : (relu ? apply_kernel<false, true> : apply_kernel<false, false>);
  kernel(native(x), scale, shift, native(residual), rows, channels, native(y));
}

void add_gradients_bf16(const BFloat16* dy, const BFloat16* x, const BFloat16* y, const float* mean, std::int64_t rows,
                        std::int64_t channels, float* sums, float* products) {
  const auto kernel = y != nullptr ? gradients_kernel<true> : gradients_kernel<false>;
  kernel(native(dy), native(x), native(y), mean, rows, channels, sums, products);
}

void backward_bf16(const BFloat16* dy, const BFloat16* x, const BFloat16* y, const BackwardCoefficients& k,
                   std::int64_t rows, std::int64_t channels, BFloat16* dx) {
  const auto kernel = y != nullptr ? backward_kernel<true> : backward_kernel<false>;
  kernel(native(dy), native(x), native(y), k, rows, channels, native(dx));
}

void add_residual_bf16(const BFloat16* dy, const BFloat16* y, std::int64_t rows, std::int64_t channels,
                       BFloat16* dresidual) {
  const auto kernel = y != nullptr ? residual_kernel<true> : residual_kernel<false>;
  kernel(native(dy), native(y), rows * channels, native(dresidual));
}

}  // namespace convoy
