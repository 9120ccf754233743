// SPDX-License-Identifier: Apache-2.0
#include "layers/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace convoy {

namespace {

std::int64_t steps_of(double epochs, std::int64_t steps_per_epoch) {
  return std::llround(epochs * static_cast<double>(steps_per_epoch));
}

}  // namespace

double StepLr::at(const LrMoment& m) const {
  const auto passed = std::count_if(milestones.begin(), milestones.end(),
                                    [&](double epoch) { return m.step >= steps_of(epoch, m.steps_per_epoch); });
  return m.lr * std::pow(gamma, static_cast<double>(passed));
}

double CosineLr::at(const LrMoment& m) const {
  return final_lr + (m.lr - final_lr) * 0.5 * (1 + std::cos(std::numbers::pi * m.time));
}

double PolynomialLr::at(const LrMoment& m) const { return final_lr + (m.lr - final_lr) * std::pow(1 - m.time, power); }

std::int64_t LrSchedule::warmup_steps() const {
  return options.warmup_steps > 0 ? options.warmup_steps : steps_of(options.warmup_epochs, steps_per_epoch);
}

double LrSchedule::at(std::int64_t step) const {
  const std::int64_t warmup = warmup_steps();
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const auto length = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup));
  const double time = std::min(1.0, static_cast<double>(step - warmup) / length);
  return std::visit([&](const auto& curve) { return curve.at({lr, time, step, steps_per_epoch}); }, options.curve);
}

}  // namespace convoy
