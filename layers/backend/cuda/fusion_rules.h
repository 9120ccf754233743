// SPDX-License-Identifier: Apache-2.0
//
// Which parts of operations the CUDA backend fuses, as far as it can be said without asking cuDNN for a plan. Needs no
// GPU. cuDNN fuses in 16-bit types; its sums over pixels may be atomic, so a deterministic backend fuses nothing.
#pragma once

#include "layers/backend/operations.h"

namespace convoy {

/// Where the mask of a ReLU comes from in backward.
enum class ReluMask : std::uint8_t {
  kNone,
  kOutput,     ///< the output of the ReLU
  kRecomputed  ///< the input of the batch norm before it
};

/// Bytes that one memset clears for small tensors of zeros, what counts as small, and where each begins; weight
/// gradients that one kernel casts.
inline constexpr std::int64_t kZeroedTogether = std::int64_t{256} << 10, kZeroedPart = kZeroedTogether / 8,
                              kZeroedAlignment = 256;
inline constexpr int kCastTogether = 128;

struct FusionRules {
  DType compute = DType::kF32;
  bool deterministic = false;

  [[nodiscard]] bool fuses_batch_norms() const { return dtype_size(compute) == 2 && !deterministic; }

  /// Statistics of the output, and in float16 a normalised input that is not stored.
  [[nodiscard]] bool fuses(const ops::Conv2dForward& op) const {
    if (op.prologue == nullptr && op.epilogue == nullptr) return false;
    if (op.prologue != nullptr && !fuses_prologue(*op.prologue)) return false;
    return fits(op.spec, op.prologue == nullptr) && op.bias == nullptr && op.y.size() > 0;
  }
  /// The sum with a residual, and the mask and the reductions of the batch norm before.
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardInput& op) const {
    if (op.epilogue != nullptr && !(op.epilogue->coefficients && op.epilogue->accumulate)) return false;
    return (op.epilogue != nullptr || op.residual) && fits(op.spec, false) && op.dx.size() > 0 &&
           op.residual.raw() != op.dx.raw();
  }
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardWeight& op) const {
    return op.prologue != nullptr && fuses_prologue(*op.prologue) && fits(op.spec, false) && op.dy.size() > 0;
  }
  /// A normalised residual, or max pooling of an output that is not stored.
  [[nodiscard]] bool fuses(const ops::BatchNormApply& op) const {
    if (!fuses_batch_norms()) return false;
    if (op.epilogue != nullptr) {
      return op.prologue == nullptr && !op.residual && op.relu && !op.y && op.mask == nullptr && fits(op.x);
    }
    return op.prologue != nullptr && op.prologue->prologue == nullptr && !op.prologue->residual && !op.prologue->relu &&
           !op.prologue->y;
  }
  /// The gradient of such a max pooling.
  [[nodiscard]] bool fuses(const ops::BatchNormBackwardReduce& op) const {
    return op.prologue != nullptr && op.relu && !op.mask && !op.masked && fuses_batch_norms() && fits(op.x);
  }
  [[nodiscard]] bool fuses(const ops::BatchNormBackwardApply& op) const {
    return op.prologue != nullptr && op.relu && !op.mask && fuses_batch_norms() && fits(op.x);
  }

 private:
  // cuDNN has no weight gradients of normalised inputs in bfloat16, nor forward plans that store them.
  [[nodiscard]] bool fuses_prologue(const ops::BatchNormApply& op) const {
    return compute == DType::kF16 && !op.y && op.coefficients && op.rounded && op.relu && !op.residual &&
           op.prologue == nullptr && op.epilogue == nullptr;
  }
  // Pixels are counted in 32 bits.
  [[nodiscard]] static bool fits(const Tensor& x) {
    return x.size() > 0 && x.shape().rank() == 4 && x.size() / x.shape()[1] <= std::int64_t{1} << 31;
  }
  [[nodiscard]] bool fits(const Conv2dSpec& spec, bool padded_input) const {
    return fuses_batch_norms() && spec.groups == 1 && spec.out_channels % 8 == 0 &&
           (padded_input || spec.in_channels % 8 == 0);
  }
};

}  // namespace convoy
