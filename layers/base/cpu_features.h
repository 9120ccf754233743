// SPDX-License-Identifier: Apache-2.0
//
// The instructions of this CPU, beyond those that every CPU of its architecture has, that own kernels use or that
// descriptions name, and loops with vectors as wide as it has. Found at run time: one program serves all CPUs.
#pragma once

#include <string>

namespace convoy {

struct CpuFeatures {
  bool crc32c = false;       ///< CRC-32C: of SSE 4.2, or Arm's CRC32 extension
  bool avx2 = false;         ///< x86-64: those of level 3 (AVX2, FMA, F16C, BMI)
  bool avx512 = false;       ///< x86-64: those of level 4 (F, BW, CD, DQ, VL)
  bool avx512_bf16 = false;  ///< x86-64: AVX512-BF16 besides those
  bool sve = false;          ///< Arm
  bool bf16 = false;         ///< Arm: products of bfloat16 numbers
};
/// Without those that ONEDNN_MAX_CPU_ISA leaves out. Functions of CONVOY_VECTORIZED follow the CPU alone.
[[nodiscard]] const CpuFeatures& cpu_features();

/// Without what is beyond this level of x86-64, a value of ONEDNN_MAX_CPU_ISA (SSE41, AVX, AVX2, AVX512_CORE, ...) in
/// any case of letters.
[[nodiscard]] CpuFeatures limited(CpuFeatures features, std::string level);

/// Of an Arm CPU with these: "NEON", "NEON with BF16", "SVE", "SVE with BF16".
[[nodiscard]] std::string arm_instructions(const CpuFeatures& features);

}  // namespace convoy

// Compiles a function for several instruction sets and picks the best at start. Only for leaf functions: code inside
// an OpenMP region is not cloned. Off under sanitizers, whose runtime is not up when the choice is made, and for
// compilers that do not know the x86-64 levels.
#if defined(CONVOY_SANITIZED) || !defined(__x86_64__) || !defined(__GNUC__) || __GNUC__ < 12 || defined(__clang__)
#define CONVOY_VECTORIZED
constexpr bool kVectorizedForCpu = false;
#else
constexpr bool kVectorizedForCpu = true;
#define CONVOY_VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), noinline))
#define CONVOY_FOR_AVX512 __attribute__((target("arch=x86-64-v4"), noinline))  // where cpu_features() say so
#define CONVOY_FOR_AVX2 __attribute__((target("arch=x86-64-v3"), noinline))
#endif
