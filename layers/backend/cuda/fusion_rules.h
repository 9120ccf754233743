// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA backend fuses: which parts of an operation (operation.h) share its kernel, and how many input channels
// a convolution reads. Without any header of CUDA, so that programs on other machines can count what it would move
// (layers/backend/observe/traffic_backend.h). Pure.
#pragma once

#include <cstdint>

#include "layers/backend/operations.h"

namespace convoy {

struct FusionRules {
  DType compute = DType::kF32;
  bool deterministic = false;

  [[nodiscard]] bool is_16_bit() const { return dtype_size(compute) == 2; }
  /// Backend::fuses_batch_norms() and recomputes_relu_masks().
  [[nodiscard]] bool fuses_batch_norms() const { return is_16_bit() && !deterministic; }

  /// Statistics of the output always, but not where a bias is added to it apart. What the input still lacks only in
  /// float16, whose arithmetic can apply it, and only where nobody else needs the values.
  [[nodiscard]] bool fuses(const ops::Conv2dForward& op) const {
    if (!fuses_batch_norms() || !has_whole_outputs(op.spec) || op.bias != nullptr) return false;
    if (op.prologue == nullptr) return op.epilogue != nullptr;
    return has_whole_inputs(op.spec) && applies_on_load(*op.prologue) && !op.prologue->y && op.prologue->coefficients;
  }
  /// Reductions over the gradient, and the addition of another one, with or without them.
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardInput& op) const {
    if (!fuses_batch_norms() || !has_whole_outputs(op.spec) || !has_whole_inputs(op.spec)) return false;
    return op.epilogue != nullptr ? static_cast<bool>(op.epilogue->coefficients) : static_cast<bool>(op.residual);
  }
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardWeight& op) const {
    return op.prologue != nullptr && fuses_batch_norms() && has_whole_outputs(op.spec) && has_whole_inputs(op.spec) &&
           applies_on_load(*op.prologue) && op.prologue->rounded;
  }
  /// The normalisation of the shortcut.
  [[nodiscard]] bool fuses(const ops::BatchNormApply& op) const {
    return op.prologue != nullptr && fuses_batch_norms();
  }

  /// Input channels as a convolution sees them, which are vectors of 16 bytes; four where statistics are fused and four
  /// are enough.
  [[nodiscard]] std::int64_t padded_channels(const Conv2dSpec& spec) const {
    constexpr std::int64_t kVectorBytes = 16, kFew = 4;
    if (spec.groups != 1) return spec.in_channels;
    if (fuses_batch_norms() && spec.in_channels <= kFew) return kFew;
    const std::int64_t unit = kVectorBytes / static_cast<std::int64_t>(dtype_size(compute));
    return (spec.in_channels + unit - 1) / unit * unit;
  }

 private:
  static constexpr std::int64_t kVector = 8;  ///< channels of 16 bits

  [[nodiscard]] static bool has_whole_outputs(const Conv2dSpec& spec) {
    return spec.groups == 1 && spec.out_channels % kVector == 0;
  }
  [[nodiscard]] static bool has_whole_inputs(const Conv2dSpec& spec) { return spec.in_channels % kVector == 0; }
  [[nodiscard]] bool applies_on_load(const ops::BatchNormApply& op) const {
    return compute == DType::kF16 && op.relu && !op.residual && op.prologue == nullptr;
  }
};

}  // namespace convoy
