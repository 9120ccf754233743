// SPDX-License-Identifier: Apache-2.0
#include "app/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace convoy {

namespace {

constexpr double kLargest = 1e300;     // shown: the range of larger ones has no length in a double
constexpr double kRoom = 0.04;         // of the axis, free at an end
constexpr double kMinRelative = 1e-6;  // a narrower range is drawn as one value

// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

struct MetricPrefix {
  double size;
  const char* symbol;
};

MetricPrefix prefix_of(double magnitude) {
  if (magnitude >= 1e12) return {1e12, "T"};
  if (magnitude >= 1e9) return {1e9, "G"};
  if (magnitude >= 1e6) return {1e6, "M"};
  if (magnitude >= 1e4) return {1e3, "k"};
  return {1, ""};
}

Interval linear_interval(Interval data, AxisKind kind) {
  if (data.empty()) data = {0, 1};
  data = {std::max(data.low, -kLargest), std::min(data.high, kLargest)};
  if (kind == AxisKind::kFromZero) data.add(0);
  const double width = data.high - data.low, size = std::max(std::abs(data.low), std::abs(data.high));
  if (width <= kMinRelative * size || width == 0) {
    const double half = size == 0 ? 0.5 : kind == AxisKind::kWhole ? 1 : size * 0.05;
    return {data.low - half, data.high + half};
  }
  const bool floor_is_zero = data.low == 0 && kind != AxisKind::kWhole;
  return {floor_is_zero ? 0 : data.low - kRoom * width, data.high + kRoom * width};
}

Interval log_interval(const Interval& data) {
  const Interval logs{std::log10(data.low), std::log10(data.high)};
  const double room = std::max(0.05, kRoom * (logs.high - logs.low));
  return {logs.low - room, logs.high + room};
}

}  // namespace

Axis::Axis(Interval data, AxisKind kind, double from, double to) : kind_(kind), from_(from), to_(to) {
  if (kind_ == AxisKind::kLog && (data.empty() || data.low <= 0)) kind_ = AxisKind::kLinear;
  shown_ = kind_ == AxisKind::kLog ? log_interval(data) : linear_interval(data, kind_);
}

double Axis::at(double value) const {
  const double place = kind_ == AxisKind::kLog ? std::log10(value) : value;
  return from_ + (place - shown_.low) / (shown_.high - shown_.low) * (to_ - from_);
}

std::vector<Tick> Axis::ticks(int about) const {
  if (kind_ == AxisKind::kLog) return log_ticks(about);
  double step = round_step((shown_.high - shown_.low) / about);
  if (kind_ == AxisKind::kWhole) step = std::max(1.0, step);
  const MetricPrefix prefix = prefix_of(std::max(std::abs(shown_.low), std::abs(shown_.high)));
  const int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(step / prefix.size) + 1e-9)), 0, 12);
  std::vector<Tick> result;
  const double first = std::ceil(shown_.low / step - 1e-9), last = std::floor(shown_.high / step + 1e-9);
  for (double i = first; i <= last; ++i) {
    const double value = i * step;
    if (value == 0) {
      result.push_back({0, "0"});
    } else if (decimals > 4 || std::abs(value) >= 1e15) {
      result.push_back({value, fmt::format("{:.3g}", value)});
    } else {
      result.push_back({value, fmt::format("{:.{}f}{}", value / prefix.size, decimals, prefix.symbol)});
    }
  }
  return result;
}

std::vector<Tick> Axis::log_ticks(int about) const {
  const int first = static_cast<int>(std::floor(shown_.low)), last = static_cast<int>(std::ceil(shown_.high));
  const int every = std::max(1, (last - first) / std::max(1, about));
  const bool fine = last - first <= 3;
  std::vector<Tick> result;
  for (int power = first; power <= last; ++power) {
    if (power % every != 0) continue;
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && !fine) break;
      const double value = factor * std::pow(10, power);
      const double log = std::log10(value);
      if (log >= shown_.low && log <= shown_.high) result.push_back({value, short_number(value)});
    }
  }
  return result;
}

std::string short_number(double value) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  if (std::abs(value) >= 1e15) return fmt::format("{:.4g}", value);  // beyond the prefixes
  const MetricPrefix prefix = prefix_of(std::abs(value));
  return fmt::format("{:.4g}{}", value / prefix.size, prefix.symbol);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 100) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace convoy
