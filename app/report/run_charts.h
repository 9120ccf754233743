// SPDX-License-Identifier: Apache-2.0
//
// From the metrics of runs to charts over steps. Relies on series.h and chart.h. Invariant: a run has its colour in
// all charts.
#pragma once

#include <string>
#include <vector>

#include "app/report/chart.h"
#include "app/report/report_run.h"

namespace convoy {

/// Loss, accuracy, learning rate, images per second, busy time over the ranks, checkpoints; those without a value draw
/// as nothing.
[[nodiscard]] std::vector<Chart> run_charts(const std::vector<ReportRun>& runs);

/// One member of each line as a curve.
template <class Line>
[[nodiscard]] Series series_of(const std::vector<Line>& lines, double Line::*member) {
  Series series;
  series.reserve(lines.size());
  for (const Line& line : lines) series.push_back({static_cast<double>(line.step), line.*member});
  return series;
}

/// What is wrong with the metrics of a run, as sentences; empty when all of it was read.
[[nodiscard]] std::vector<std::string> remarks(const ReportRun& run);

}  // namespace convoy
