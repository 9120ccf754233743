// SPDX-License-Identifier: Apache-2.0
//
// Dynamic loss scaling for float16 (Micikevicius et al. 2018; torch.cuda.amp.GradScaler): the loss is multiplied by a
// power of two so that small gradients do not vanish in 16 bits, gradients are divided by it in float32 before the
// update, and an update whose gradients overflowed is left out. The scale doubles at every 2,000th update and halves
// after an overflow. Invariant: the scale alone is its state, so a resumed run continues with the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "layers/backend/backend.h"

namespace convoy {

class LossScaler {
 public:
  static constexpr double kStart = 65536, kMax = 16777216, kMin = 1;
  static constexpr std::int64_t kGrowthInterval = 2000;  ///< updates

  /// Not enabled: the scale is 1 for ever and gradients are not looked at.
  explicit LossScaler(bool enabled = false) : enabled_(enabled), scale_(enabled ? kStart : 1) {}

  [[nodiscard]] bool enabled() const { return enabled_; }
  [[nodiscard]] double scale() const { return scale_; }
  /// From a checkpoint; ignored when not enabled or out of range.
  void restore(double scale) {
    if (enabled_ && scale >= kMin && scale <= kMax) scale_ = scale;
  }

  /// Whether all of these gradients (float32) are finite, which divides them by the scale.
  bool unscale(Backend& backend, const Tensor& gradients) const {
    if (!enabled_) return true;
    if (!backend.all_finite(gradients)) return false;
    backend.run(ops::Scale{static_cast<float>(1 / scale_), gradients, gradients});
    return true;
  }

  /// After update number `update` (from 0), made when `finite`, else left out.
  void finish(bool finite, std::int64_t update) {
    if (!enabled_) return;
    if (!finite) {
      scale_ = std::max(kMin, scale_ / 2);
    } else if ((update + 1) % kGrowthInterval == 0) {
      scale_ = std::min(kMax, 2 * scale_);
    }
  }

 private:
  bool enabled_;
  double scale_;
};

/// The scale where operations read it: in memory of a backend, which outlives this. It stays at one place, as recorded
/// work needs.
class DeviceLossScale {
 public:
  /// scaled: whether there is one (LossScaler::enabled).
  DeviceLossScale(Backend& backend, bool scaled) : backend_(backend), scaled_(scaled) {}

  /// Sets it; not within what is recorded.
  void set(double scale) {
    if (!scaled_ || scale == value_) return;
    if (!tensor_) tensor_ = backend_.tensor({1}, DType::kF32);
    value_ = scale;
    const auto factor = static_cast<float>(scale);
    backend_.copy_from_host(&factor, tensor_);
  }
  /// float32 [1]; empty where losses are not scaled.
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

 private:
  Backend& backend_;
  bool scaled_;
  double value_ = 0;
  Tensor tensor_;
};

}  // namespace convoy
