// SPDX-License-Identifier: Apache-2.0
//
// Kernels on vectors as wide as a register of this CPU: of AVX-512, AVX2, SSE or NEON. Private to
// layers/backend/onednn.
#pragma once

#include <type_traits>

#include "layers/backend/onednn/bfloat16.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/base/cpu_features.h"

namespace convoy {

template <int count>
using VectorWidth = std::integral_constant<int, count>;

#ifdef CONVOY_FOR_AVX512
template <class F>
CONVOY_FOR_AVX512 void run_avx512(const F& f) {
  f(VectorWidth<16>());
}
template <class F>
CONVOY_FOR_AVX2 void run_avx2(const F& f) {
  f(VectorWidth<8>());
}
#endif

/// Calls f(VectorWidth<w>()) for the widest vectors of this CPU, compiled for its instruction set. f: a lambda of
/// CONVOY_INLINE_LAMBDA that calls inlined functions only.
template <class F>
void vectorized(const F& f) {
#ifdef CONVOY_FOR_AVX512
  if (cpu_features().avx512) return run_avx512(f);
  if (cpu_features().avx2) return run_avx2(f);
#endif
  f(VectorWidth<4>());
}

template <class F>
CONVOY_NATIVE_BF16 void run_native_bf16(const F& f) {
  f(VectorWidth<kLanes>(), NativeBFloat16());
}

/// The same with how to convert Pixel, float or BFloat16, as the second argument: itself or a NativeBFloat16.
template <class Pixel, class F>
void vectorized_pixels(const F& f) {
  if constexpr (kHasNativeBFloat16 && std::is_same_v<Pixel, BFloat16>) {
    if (native_bf16()) return run_native_bf16(f);
  }
  vectorized([&](auto width) CONVOY_INLINE_LAMBDA { f(width, Pixel()); });
}

}  // namespace convoy
