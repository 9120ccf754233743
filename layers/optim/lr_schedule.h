// SPDX-License-Identifier: Apache-2.0
//
// Learning rate as a pure function of the step. Warm-up is linear from lr / warmup_steps to lr; what follows counts
// its progress from the end of the warm-up to the last step.
#pragma once

#include <cstdint>
#include <vector>

namespace convoy {

struct LrSchedule {
  enum class Kind { kConstant, kStep, kCosine, kPolynomial } kind = Kind::kConstant;
  double lr = 0.1;      ///< after the warm-up
  double final_lr = 0;  ///< cosine and polynomial end here
  std::int64_t total_steps = 1;
  std::int64_t warmup_steps = 0;
  std::vector<std::int64_t> milestones;  ///< steps at which `step` multiplies by gamma
  double gamma = 0.1;
  double power = 2;  ///< of polynomial

  /// step counts from 0. Cosine: Loshchilov & Hutter 2017 without restarts; polynomial: (1 - t)^power.
  [[nodiscard]] double at(std::int64_t step) const;
};

}  // namespace convoy
