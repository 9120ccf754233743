// SPDX-License-Identifier: Apache-2.0
//
// Which algorithms convolutions use, by kind of CPU: a table, since a choice by timing could change the last bits from
// run to run. Shapes decide the rest (conv/conv2d.cpp). `convoy bench --calibrate-cpu` times both sides of each choice.
#pragma once

#include <array>
#include <string_view>

namespace convoy {

struct CpuRules {
  bool bf16_products = false;       ///< products of bfloat16 activations in bfloat16, not in float32 (upcast.h)
  bool winograd = false;            ///< 3×3 windows by Winograd's products (conv/winograd.h) in place of float32 ones
  bool winograd_bf16 = false;       ///< and in place of bfloat16 ones
  bool pointwise_gemm = false;      ///< float32 1×1 windows as packed GEMMs (conv/pointwise_conv2d.h)
  bool own_rows = false;            ///< these and linear layers by own products (conv/row_product.h)
  bool own_rows_bf16 = false;       ///< bfloat16 1×1 windows and linear layers by those of conv/row_product_bf16.h
  bool im2col = false;              ///< large strided float32 windows by im2col (conv/im2col_gemm.h)
  bool im2col_narrow = false;       ///< and those to fewer than 512 channels
  bool im2col_bf16_weight = false;  ///< weight gradients of bfloat16 convolutions by im2col
  bool pixel_gradient = false;      ///< those by own products in place of im2col (conv/pixel_gradient.h)
  /// Weight gradients of float32 windows of more than a pixel by such products; with `im2col`, strided ones then also
  /// go forward by im2col.
  bool pixel_gradient_f32 = false;
  bool row_gradient_f32 = false;   ///< those of 1×1 windows and linear layers
  bool im2col_bf16_input = false;  ///< bfloat16 input gradients by col2im, or transposed (conv/transposed_conv2d.h)
};

struct CpuRule {
  std::string_view name, what;
  bool CpuRules::*choice;
};
inline constexpr std::array<CpuRule, 13> kCpuRules{{
    {"bf16_products", "products of bf16 activations in bf16", &CpuRules::bf16_products},
    {"winograd", "fp32 3x3 by Winograd", &CpuRules::winograd},
    {"winograd_bf16", "bf16 3x3 by Winograd, in fp32", &CpuRules::winograd_bf16},
    {"pointwise_gemm", "fp32 1x1 as packed GEMMs", &CpuRules::pointwise_gemm},
    {"own_rows", "fp32 1x1 and linear layers by own products", &CpuRules::own_rows},
    {"own_rows_bf16", "bf16 1x1 and linear layers by own products", &CpuRules::own_rows_bf16},
    {"im2col", "fp32 strided 3x3 by im2col", &CpuRules::im2col},
    {"im2col_narrow", "fp32 strided 3x3 of fewer channels by im2col", &CpuRules::im2col_narrow},
    {"im2col_bf16_weight", "bf16 weight gradients by im2col", &CpuRules::im2col_bf16_weight},
    {"pixel_gradient", "bf16 weight gradients by own products over pixels", &CpuRules::pixel_gradient},
    {"pixel_gradient_f32", "fp32 weight gradients of windows by own products", &CpuRules::pixel_gradient_f32},
    {"row_gradient_f32", "fp32 1x1 and linear weight gradients by own products", &CpuRules::row_gradient_f32},
    {"im2col_bf16_input", "bf16 input gradients by col2im", &CpuRules::im2col_bf16_input},
}};

struct CpuKind {
  std::string_view name;      ///< parameters and gradients have the same formats on all CPUs of a name
  std::string_view measured;  ///< on which CPU the choices were timed; empty: on none
  CpuRules rules;
};

/// The row of the table for this CPU.
[[nodiscard]] const CpuKind& this_cpu();

/// Nothing but oneDNN's direct algorithm where that is right, in bfloat16 if the CPU has its instructions.
[[nodiscard]] CpuRules direct_rules();

}  // namespace convoy
