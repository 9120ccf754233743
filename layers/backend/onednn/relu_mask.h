// SPDX-License-Identifier: Apache-2.0
//
// What lets a gradient through a ReLU: where its output is above 0 or NaN. Each kind of mask has load_masked(), which
// sets `count` vectors g to what becomes of the gradients dy of their channels, from `first` on, of a row; `first` is a
// multiple of all these channels. A mask of bits takes a 32nd of the bytes of a float32 output that backward would read
// else, a 16th of those of a bfloat16 one. Private to layers/backend/onednn.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/base/host_loops.h"
#include "layers/base/tensor.h"

namespace convoy {

constexpr std::int64_t kMaskBlock = 8 * kLanes;  // channels whose bits are in kLanes bytes

/// Bytes of a mask of bits for a row of `channels`, a multiple of kLanes. Bit b of byte l of a block is of its channel
/// b * kLanes + l.
inline std::int64_t mask_row_bytes(std::int64_t channels) { return (channels + kMaskBlock - 1) / kMaskBlock * kLanes; }

struct NoMask {
  template <int count, class Floats, class Pixel>
  CONVOY_INLINE void load_masked(const Pixel* dy, std::int64_t, std::int64_t, Floats* g) const {
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) load(dy + v * kWidth<Floats>, g[v]);
  }
};

template <class T>
struct OutputMask {
  const T* y;
  std::int64_t channels;
  template <int count, class Floats, class Pixel>
  CONVOY_INLINE void load_masked(const Pixel* dy, std::int64_t row, std::int64_t first, Floats* g) const {
    const auto* outputs = static_cast<const Pixel*>(y + row * channels + first);
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      Floats output, gradient;
      load(outputs + v * kWidth<Floats>, output);
      load(dy + v * kWidth<Floats>, gradient);
      g[v] = output <= 0.0F ? Floats{} : gradient;
    }
  }
};

struct BitMask {
  const std::uint8_t* bytes;
  std::int64_t row_bytes;
  template <int count, class Floats>
  CONVOY_INLINE void load_masked(const float* dy, std::int64_t row, std::int64_t first, Floats* g) const {
    using Words = Vector<std::uint32_t, kWidth<Floats>>;
    constexpr int per_lanes = kLanes / kWidth<Floats>, loads = per_lanes < count ? per_lanes : count;
    const std::int64_t in_block = first % kMaskBlock;
    const std::uint8_t* from = bytes + row * row_bytes + (first - in_block) / 8 + in_block % kLanes;
    Words bits[loads];
#pragma GCC unroll 4
    for (int i = 0; i < loads; ++i) {
      Vector<std::uint8_t, kWidth<Floats>> packed;
      std::memcpy(&packed, from + i * kWidth<Floats>, sizeof(packed));
      bits[i] = __builtin_convertvector(packed, Words);
    }
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      const Words bit = Words{} + (1U << (in_block / kLanes + v / per_lanes));
      Floats gradient;
      load(dy + v * kWidth<Floats>, gradient);
      g[v] = (bits[v % loads] & bit) != 0 ? gradient : Floats{};
    }
  }
};

/// Bits of bfloat16 activations: a word of 16 bits for each vector of a row.
struct WordMask {
  const std::uint16_t* words;
  std::int64_t row_words;
  template <int count, class Floats, class Pixel>
  CONVOY_INLINE void load_masked(const Pixel* dy, std::int64_t row, std::int64_t first, Floats* g) const {
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v, dy += kWidth<Floats>, first += kWidth<Floats>) {
      const std::uint16_t word = words[row * row_words + first / kLanes];
      if constexpr (kWidth<Floats> == kLanes) {
        load(dy, word, g[v]);
      } else {  // compiled, but such masks are there with AVX512-BF16 only
        Floats gradient;
        load(dy, gradient);
        g[v] = Floats{};
        for (int lane = 0; lane < kWidth<Floats>; ++lane) {
          if ((word >> (first % kLanes + lane) & 1) != 0) g[v][lane] = gradient[lane];
        }
      }
    }
  }
};

/// Calls f with T{}, for activations of x's type, and the mask that y is: an output, bits, or none.
template <class F>
void dispatch_relu_mask(const Tensor& x, const Tensor& y, F&& f) {
  dispatch_activation(x.dtype(), [&](auto type) {
    using T = decltype(type);
    if (!y) return f(type, NoMask{});
    if (y.dtype() == DType::kU8) {
      if constexpr (std::is_same_v<T, float>) {
        return f(type, BitMask{y.data<std::uint8_t>(), mask_row_bytes(x.shape()[1])});
      } else {
        return f(type, WordMask{static_cast<const std::uint16_t*>(y.raw()), x.shape()[1] / kLanes});
      }
    }
    f(type, OutputMask<T>{y.data<T>(), x.shape()[1]});
  });
}

}  // namespace convoy
