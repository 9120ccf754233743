// SPDX-License-Identifier: Apache-2.0
//
// Checks gradients against finite differences. The function under test reads a float buffer; the slope at each entry
// is the central difference in double over the step that float really took. Where ReLU or max pooling has its kink
// within the step, the slopes to the left and to the right differ: such entries are skipped, and few may be.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace convoy {

struct GradientCheckOptions {
  /// Change of an entry, up and down. The central difference is wrong by about step^2 / 6 * f''' + noise / step.
  double step = 1e-3;
  /// Allowed difference between slope and gradient, relative to the larger of both and of the gradient's root mean
  /// square: an entry far below the others is as uncertain as they are.
  double tolerance = 1e-3;
  /// A kink: left and right slope differ by more than this, in the same measure. A smooth function's differ by
  /// step * f''.
  double kink = 2e-2;
  /// At most this share of the entries may be skipped.
  double skipped_share = 0.05;
  /// Entries looked at, evenly spread; 0 means all.
  std::int64_t entries = 0;
};

struct GradientReport {
  std::int64_t checked = 0, skipped = 0;
  double worst = 0.0;  ///< the largest difference, in the measure of `tolerance`; infinite for NaN
  std::int64_t worst_entry = -1;
  double worst_slope = 0.0, worst_gradient = 0.0;
};

/// Compares `gradient` (the same length as x) with the slopes of value(), a double that depends on x. Restores x.
template <class Value>
GradientReport compare_gradient(std::span<float> x, std::span<const float> gradient, Value&& value,
                                const GradientCheckOptions& options = {}) {
  GradientReport report;
  const auto count = static_cast<std::int64_t>(x.size());
  double squares = 0.0;
  for (const float g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
  const double typical = std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(1, count)));
  const std::int64_t wanted = options.entries == 0 ? count : std::min(count, options.entries);
  const double here = value();
  for (std::int64_t e = 0; e < wanted; ++e) {
    const std::int64_t i = e * count / wanted;
    float& entry = x[static_cast<std::size_t>(i)];
    const float original = entry;
    const auto evaluate = [&](double change, double& moved) {
      entry = static_cast<float>(original + change);
      moved = static_cast<double>(entry) - static_cast<double>(original);
      const double result = value();
      entry = original;
      return result;
    };
    double up = 0.0, down = 0.0;
    const double above = evaluate(options.step, up), below = evaluate(-options.step, down);
    const double right = (above - here) / up, left = (below - here) / down, slope = (above - below) / (up - down);
    const double expected = gradient[static_cast<std::size_t>(i)];
    const double scale = std::max({std::abs(slope), std::abs(expected), typical, 1e-30});
    if (std::abs(right - left) > options.kink * scale) {
      ++report.skipped;
      continue;
    }
    ++report.checked;
    const double error = std::abs(slope - expected) / scale;
    if (!(error <= report.worst)) {
      report.worst = std::isnan(error) ? INFINITY : error;
      report.worst_entry = i;
      report.worst_slope = slope;
      report.worst_gradient = expected;
    }
  }
  return report;
}

/// The same as doctest checks, named `what` when they fail.
template <class Value>
void check_gradient(const std::string& what, std::span<float> x, std::span<const float> gradient, Value&& value,
                    const GradientCheckOptions& options = {}) {
  REQUIRE_MESSAGE(x.size() == gradient.size(), what);
  const GradientReport report = compare_gradient(x, gradient, std::forward<Value>(value), options);
  CHECK_MESSAGE(report.worst <= options.tolerance, what,
                fmt::format(": entry {} has slope {} but gradient {} (error {})", report.worst_entry,
                            report.worst_slope, report.worst_gradient, report.worst));
  const double total = static_cast<double>(report.checked + report.skipped);
  CHECK_MESSAGE(static_cast<double>(report.skipped) <= options.skipped_share * total, what,
                fmt::format(": {} of {} entries skipped as kinks", report.skipped, total));
}

}  // namespace convoy
