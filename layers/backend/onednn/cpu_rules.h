// SPDX-License-Identifier: Apache-2.0
//
// Which algorithms convolutions use, by kind of CPU: a table, since a choice by timing could change the last bits from
// run to run. Shapes decide the rest (conv/conv2d.cpp). `convoy bench --calibrate-cpu` times both sides of each choice.
#pragma once

#include <array>
#include <string_view>

namespace convoy {

struct CpuRules {
  bool bf16_products = false;        ///< products of bfloat16 activations in bfloat16, not in float32 (upcast.h)
  bool winograd = false;             ///< float32 3×3 windows by Winograd's products (conv/winograd.h)
  bool winograd_bf16 = false;        ///< of bfloat16 activations, too, in float32
  bool row_products = false;         ///< float32 1×1 windows as packed products (conv/pointwise_conv2d.h)
  bool columns = false;              ///< large strided float32 windows as products over columns (conv/im2col_gemm.h)
  bool columns_bf16_weight = false;  ///< weight gradients of bfloat16 convolutions so
  bool columns_bf16_input = false;   ///< their input gradients so, or transposed (conv/transposed_conv2d.h)
};

struct CpuRule {
  std::string_view name, what;
  bool CpuRules::*choice;
};
inline constexpr std::array<CpuRule, 7> kCpuRules{{
    {"bf16_products", "products of bf16 activations in bf16", &CpuRules::bf16_products},
    {"winograd", "fp32 3x3 by Winograd", &CpuRules::winograd},
    {"winograd_bf16", "bf16 3x3 by Winograd, in fp32", &CpuRules::winograd_bf16},
    {"row_products", "fp32 1x1 as packed products", &CpuRules::row_products},
    {"columns", "fp32 strided 3x3 over columns", &CpuRules::columns},
    {"columns_bf16_weight", "bf16 weight gradients over columns", &CpuRules::columns_bf16_weight},
    {"columns_bf16_input", "bf16 input gradients over columns", &CpuRules::columns_bf16_input},
}};

struct CpuKind {
  std::string_view name;
  std::string_view measured;  ///< on which CPU the choices were timed; empty: on none
  CpuRules rules;
};

/// The row of the table for this CPU.
[[nodiscard]] const CpuKind& this_cpu();

/// Nothing but oneDNN's direct algorithm, in bfloat16 if the CPU has its instructions.
[[nodiscard]] CpuRules direct_rules();

}  // namespace convoy
