// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/cpu_rules.h"

#include "layers/backend/onednn/onednn_state.h"
#include "layers/base/cpu_features.h"

namespace convoy {

namespace {

constexpr CpuKind kMatrixUnits{"x86-64 with AMX",
                               "an Intel Xeon with AMX (Sapphire Rapids)",
                               {.bf16_products = true,
                                .winograd = true,
                                .winograd_bf16 = false,
                                .pointwise_gemm = true,
                                .im2col = true,
                                .im2col_bf16_weight = true,
                                .pixel_gradient = false,
                                .im2col_bf16_input = true}};
constexpr CpuKind kFastBf16{"x86-64 with AVX512-BF16 of AMD",
                            "an AMD EPYC (Zen 5)",
                            {.bf16_products = true,
                             .winograd = true,
                             .winograd_bf16 = true,
                             .pointwise_gemm = true,
                             .own_rows_bf16 = true,
                             .im2col = true,
                             .im2col_bf16_weight = true,
                             .pixel_gradient = true,
                             .pixel_gradient_f32 = true,
                             .im2col_bf16_input = false}};

constexpr CpuRules with_own_rows(CpuRules rules) {
  rules.own_rows = true;
  return rules;
}

// Six sums in registers are enough to keep its multipliers busy, which take half a vector of 16 values at a time.
constexpr CpuKind kZen4{kFastBf16.name, "an AMD EPYC (Zen 4)", with_own_rows(kFastBf16.rules)};

// Intel's instruction takes four times as long as a float32 multiply-add and does twice as much. It counts where the
// matrix units are hidden, as on many virtual machines: 94 GFLOP/s beside 190 on a core of the fifth generation.
constexpr CpuKind kSlowBf16{"x86-64 with AVX512-BF16 of Intel",
                            "an Intel Xeon of the fifth generation",
                            {.winograd = true, .pointwise_gemm = true, .im2col = true}};
constexpr CpuKind kNoBf16{"no bfloat16 instructions", "", {.winograd = true, .pointwise_gemm = true, .im2col = true}};
constexpr CpuKind kAvx2{"x86-64 with AVX2, without AVX-512",
                        "an AMD EPYC (Zen 3)",
                        {.winograd = true,
                         .pointwise_gemm = true,
                         .own_rows = true,
                         .im2col = true,
                         .im2col_narrow = true,
                         .pixel_gradient_f32 = true,
                         .row_gradient_f32 = true}};

const CpuKind& find_kind() {
  if (has_matrix_units()) return kMatrixUnits;
  if (cpu_features().avx2 && !cpu_features().avx512) return kAvx2;
  if (!has_bf16()) return kNoBf16;
#ifdef __x86_64__
  if (__builtin_cpu_is("amdfam19h") != 0) return kZen4;
  if (__builtin_cpu_is("amd") != 0) return kFastBf16;
#endif
  return kSlowBf16;
}

}  // namespace

const CpuKind& this_cpu() {
  static const CpuKind& kind = find_kind();
  return kind;
}

CpuRules direct_rules() {
  CpuRules rules;
  rules.bf16_products = has_bf16();
  return rules;
}

}  // namespace convoy
