// SPDX-License-Identifier: Apache-2.0
//
// A chart over steps as a <figure> with an SVG: curves, bands and marks of several runs, axes, a caption. Relies on
// axis.h, and on the page's style sheet (page.cpp) for colours. Invariant: at most kPointsOfALine points a curve.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/report/axis.h"
#include "app/report/series.h"

namespace convoy {

inline constexpr std::size_t kPointsOfALine = 2000;

enum class LineKind {
  kMain,   ///< bold
  kFaint,  ///< each step, behind a smoothed curve
  kSecond  ///< dashed, with dots where there are few points
};

struct ChartLine {
  Series points;
  std::size_t colour = 0;  ///< of the run, as in colour_class()
  LineKind kind = LineKind::kMain;
  std::string what;  ///< told of each dot under the mouse
};

struct ChartBand {
  Band points;
  std::size_t colour = 0;
};

/// A thin vertical line.
struct ChartMark {
  double x = 0;
  std::size_t colour = 0;
  std::string what;
};

struct Chart {
  std::string title = {};  ///< with the unit
  std::string note = {};   ///< what is drawn how, a sentence
  AxisKind y = AxisKind::kLinear;
  bool percent = false;  ///< y are shares
  Interval steps = {};   ///< the horizontal axis; empty: what the lines have
  std::vector<ChartLine> lines = {};
  std::vector<ChartBand> bands = {};
  std::vector<ChartMark> marks = {};
};

/// kLog when the values of `lines` are all positive and the largest is 50 times the smallest or more; else `otherwise`.
[[nodiscard]] AxisKind scale_for(const std::vector<ChartLine>& lines, AxisKind otherwise);

/// Empty when the chart has no finite value.
[[nodiscard]] std::string draw_chart(const Chart& chart);

}  // namespace convoy
