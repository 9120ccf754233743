// SPDX-License-Identifier: Apache-2.0
//
// Batch norm's output for bfloat16 rows with the CPU's own conversions (AVX512-BF16). In the general loop conversions
// take most of the time. Rows are of whole vectors of kLanes. Private to layers/backend/onednn.
#pragma once

#include <cstdint>

#include "layers/backend/onednn/bfloat16.h"

namespace convoy {

/// Whether the CPU has those conversions, and rows of `channels` are of whole vectors.
[[nodiscard]] bool has_bf16_rows(std::int64_t channels);

/// Sets y [rows, channels] to x * scale + shift, + residual unless that is null, through ReLU where `relu`; then bits
/// [rows, channels / kLanes], unless that is null, to where y is above 0 or NaN.
void apply_bf16(const BFloat16* x, const float* scale, const float* shift, const BFloat16* residual, bool relu,
                std::int64_t rows, std::int64_t channels, BFloat16* y, std::uint16_t* bits);

}  // namespace convoy
