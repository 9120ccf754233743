// SPDX-License-Identifier: Apache-2.0
//
// Where values lie on a picture, and the numbers beside it. Pure. Invariant: an axis has a length, also when all values
// are equal or there is none.
#pragma once

#include <string>
#include <vector>

#include "app/report/series.h"

namespace convoy {

struct Tick {
  double value = 0;
  std::string text;
};

enum class AxisKind {
  kLinear,
  kFromZero,  ///< linear, 0 included
  kLog,       ///< of positive values
  kWhole      ///< linear, ticks on whole numbers
};

class Axis {
 public:
  /// Values of `data` lie between the pictures's coordinates `from` and `to`, with a margin at both ends.
  Axis(Interval data, AxisKind kind, double from, double to);
  [[nodiscard]] double at(double value) const;
  /// About `about` of them, on round numbers, in rising order.
  [[nodiscard]] std::vector<Tick> ticks(int about) const;

 private:
  [[nodiscard]] std::vector<Tick> log_ticks(int about) const;
  AxisKind kind_;
  Interval shown_;  // of a logarithmic axis: the logarithms
  double from_, to_;
};

/// A number for a person: 4 significant digits, "12.3k", "4.56M"; "-" for NaN.
[[nodiscard]] std::string short_number(double value);

/// "850 ms", "12.3 s", "4 min 05 s", "3 h 20 min"; "-" for NaN.
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace convoy
