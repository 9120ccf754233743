// SPDX-License-Identifier: Apache-2.0
//
// The instructions of this CPU, beyond those that every CPU of its architecture has, that own kernels use or that
// descriptions name. Found at run time: one program serves all CPUs.
#pragma once

#include <string>

namespace convoy {

struct CpuFeatures {
  bool crc32c = false;  ///< CRC-32C: of SSE 4.2, or Arm's CRC32 extension
  bool avx2 = false;    ///< x86-64
  bool sve = false;     ///< Arm
  bool bf16 = false;    ///< Arm: products of bfloat16 numbers
};
[[nodiscard]] const CpuFeatures& cpu_features();

/// Of an Arm CPU with these: "NEON", "NEON with BF16", "SVE", "SVE with BF16".
[[nodiscard]] std::string arm_instructions(const CpuFeatures& features);

}  // namespace convoy
