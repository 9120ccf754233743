// SPDX-License-Identifier: Apache-2.0
#include "layers/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace convoy {

double LrSchedule::at(std::int64_t step) const {
  if (step < warmup_steps) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const auto length = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  const double t = std::min(1.0, static_cast<double>(step - warmup_steps) / length);
  switch (kind) {
    case Kind::kStep: {
      const auto passed = std::count_if(milestones.begin(), milestones.end(), [&](auto m) { return step >= m; });
      return lr * std::pow(gamma, static_cast<double>(passed));
    }
    case Kind::kCosine: return final_lr + (lr - final_lr) * 0.5 * (1 + std::cos(std::numbers::pi * t));
    case Kind::kPolynomial: return final_lr + (lr - final_lr) * std::pow(1 - t, power);
    case Kind::kConstant: break;
  }
  return lr;
}

}  // namespace convoy
