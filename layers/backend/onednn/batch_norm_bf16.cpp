// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/batch_norm_bf16.h"

#include "layers/backend/onednn/lanes.h"

namespace convoy {

namespace {

const NativeBFloat16* native(const BFloat16* x) { return static_cast<const NativeBFloat16*>(x); }
NativeBFloat16* native(BFloat16* x) { return static_cast<NativeBFloat16*>(x); }

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

// The kernel for a kind of mask.
template <class Kernel>
Kernel choose(const Bf16Mask& mask, Kernel none, Kernel output, Kernel bits) {
  return mask.bits != nullptr ? bits : mask.y != nullptr ? output : none;
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
