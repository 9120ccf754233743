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

}  // namespace convoy
