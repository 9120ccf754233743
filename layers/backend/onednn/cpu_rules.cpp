// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/cpu_rules.h"

#include "layers/backend/onednn/onednn_state.h"

namespace convoy {

namespace {

// In the order of the members: bf16_products, winograd, winograd_bf16, row_products, columns, columns_bf16_weight,
// columns_bf16_input.
constexpr CpuKind kMatrixUnits{
    "x86-64 with AMX", "an Intel Xeon with AMX", {true, true, false, true, true, true, true}};
constexpr CpuKind kFastBf16{
    "x86-64 with AVX512-BF16 of AMD", "an AMD EPYC (Zen 4)", {true, true, true, true, true, true, false}};
// Intel's instruction takes four times as long as a float32 multiply-add and does twice as much, where the matrix units
// are hidden, as on many virtual machines: 94 GFLOP/s beside 190 on a core of the fifth generation.
constexpr CpuKind kSlowBf16{"x86-64 with AVX512-BF16 of Intel",
                            "an Intel Xeon of the fifth generation",
                            {false, true, false, true, true, false, false}};
constexpr CpuKind kNoBf16{
    "without bfloat16 instructions of oneDNN", "", {false, true, false, true, true, false, false}};

const CpuKind& find_kind() {
  if (has_matrix_units()) return kMatrixUnits;
  if (!has_bf16()) return kNoBf16;
#ifdef __x86_64__
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
