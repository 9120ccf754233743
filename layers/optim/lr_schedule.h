// SPDX-License-Identifier: Apache-2.0
//
// Learning rate as a pure function of the step, and its options. Warm-up is linear from lr / warmup_steps to lr; then
// a curve takes over, whose time goes from 0 at the end of the warm-up to 1 at the last step.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "layers/base/option_choice.h"

namespace convoy {

/// A moment after the warm-up.
struct LrMoment {
  double lr = 0;    ///< at the end of the warm-up
  double time = 0;  ///< from 0 to 1
  std::int64_t step = 0, steps_per_epoch = 1;
};

struct ConstantLr {
  static constexpr std::string_view kName = "constant";
  template <class Visitor, class Self>
  static void visit(Visitor& /*v*/, Self& /*o*/) {}
  [[nodiscard]] double at(const LrMoment& m) const { return m.lr; }
  bool operator==(const ConstantLr&) const = default;
};

/// Multiplies by gamma at each milestone.
struct StepLr {
  static constexpr std::string_view kName = "step";
  std::vector<double> milestones;  ///< epochs: rising
  double gamma = 0.1;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("milestones", o.milestones, above(0).items(1).required(),
          "epochs after which the rate is multiplied by gamma");
    v.key("gamma", o.gamma, above(0), "that factor");
  }
  [[nodiscard]] double at(const LrMoment& m) const;
  bool operator==(const StepLr&) const = default;
};

/// Loshchilov & Hutter 2017, without restarts.
struct CosineLr {
  static constexpr std::string_view kName = "cosine";
  double final_lr = 0;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("final_lr", o.final_lr, at_least(0), "the rate at the end");
  }
  [[nodiscard]] double at(const LrMoment& m) const;
  bool operator==(const CosineLr&) const = default;
};

/// (1 - time)^power.
struct PolynomialLr {
  static constexpr std::string_view kName = "polynomial";
  double power = 2;
  double final_lr = 0;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("power", o.power, above(0), "of the share of steps left");
    v.key("final_lr", o.final_lr, at_least(0), "the rate at the end");
  }
  [[nodiscard]] double at(const LrMoment& m) const;
  bool operator==(const PolynomialLr&) const = default;
};

/// The curves by name.
using LrCurve = std::variant<ConstantLr, StepLr, CosineLr, PolynomialLr>;

/// [lr_schedule]; times are epochs. At most one of warmup_epochs and warmup_steps is above 0.
struct LrScheduleOptions {
  double warmup_epochs = 0;
  std::int64_t warmup_steps = 0;
  LrCurve curve = {};

  [[nodiscard]] std::string_view name() const { return choice_name(curve); }
  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    visit_choice_name(v, "name", o.curve, anything(), "which curve");
    v.key("warmup_epochs", o.warmup_epochs, at_least(0),
          "epochs, or parts of one, in which the rate rises to optimizer.lr");
    v.key("warmup_steps", o.warmup_steps, between(0, kMaxCount), "the same in steps");
    visit_choice_options(v, "lr_schedule.name", o.curve);
  }
  bool operator==(const LrScheduleOptions&) const = default;
};

struct LrSchedule {
  LrScheduleOptions options;
  double lr = 0.1;  ///< after the warm-up
  std::int64_t steps_per_epoch = 1;
  std::int64_t total_steps = 1;

  [[nodiscard]] std::int64_t warmup_steps() const;
  /// step counts from 0.
  [[nodiscard]] double at(std::int64_t step) const;
};

}  // namespace convoy
