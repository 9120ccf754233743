// SPDX-License-Identifier: Apache-2.0
#include "app/report/run_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "layers/base/counted.h"

namespace convoy {

namespace {

constexpr double kSpans = 50;           // a smoothed curve looks back over this part of the steps
constexpr std::size_t kFewSteps = 100;  // of fewer, each is drawn

// The number of logged steps that a smoothed curve of the run looks back over; 1: it is the curve itself.
double span_of(const RunMetrics& run) {
  return run.steps.size() < kFewSteps ? 1 : static_cast<double>(run.steps.size()) / kSpans;
}

// With one run, validation has a colour of its own; with several, the colour is the run's.
std::size_t second_colour(const std::vector<ReportRun>& runs, std::size_t run) { return runs.size() == 1 ? 1 : run; }

// The curve, smoothed over the curve itself in a faint colour when there are many steps.
void add_curve(Chart& chart, const Series& series, const ReportRun& run, std::size_t colour) {
  const double span = span_of(run.metrics);
  if (span > 1) {
    chart.lines.push_back({smooth(series, span), colour, LineKind::kMain, run.name});
    chart.lines.push_back({series, colour, LineKind::kFaint, run.name});
  } else {
    chart.lines.push_back({series, colour, LineKind::kMain, run.name});
  }
}

// How the curves of add_curve were smoothed, as text; empty when none was.
std::string smoothing(const std::vector<ReportRun>& runs) {
  Interval spans;
  for (const ReportRun& run : runs) {
    if (span_of(run.metrics) > 1) spans.add(span_of(run.metrics));
  }
  if (spans.empty()) return "";
  const std::string most = fmt::format("{:.0f}", spans.high), least = fmt::format("{:.0f}", spans.low);
  return fmt::format("Bold: moving average over about {} logged steps; faint: each of them.",
                     most == least ? most : fmt::format("{} to {}", least, most));
}

std::string sentences(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : fmt::format("{} {}", first, second);
}

Chart loss_chart(const std::vector<ReportRun>& runs) {
  Chart chart{.title = "Loss"};
  bool validated = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ReportRun& run = runs[i];
    add_curve(chart, series_of(run.metrics.steps, &StepLine::loss), run, i);
    if (run.metrics.evals.empty()) continue;
    validated = true;
    chart.lines.push_back({series_of(run.metrics.evals, &EvalLine::loss), second_colour(runs, i), LineKind::kSecond,
                           fmt::format("{}, validation loss", run.name)});
  }
  chart.note = sentences(smoothing(runs), validated ? "Dashed: validation." : "");
  chart.y = scale_for(chart.lines, AxisKind::kLinear);
  return chart;
}

// A regression has no accuracy: its evaluations have 0 throughout.
Chart accuracy_chart(const std::vector<ReportRun>& runs) {
  Chart chart{.title = "Validation accuracy, %", .note = "Bold: top-1; dashed: top-5.", .percent = true};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& evals = runs[i].metrics.evals;
    if (std::none_of(evals.begin(), evals.end(), [](const EvalLine& e) { return e.top1 > 0 || e.top5 > 0; })) continue;
    const std::string& name = runs[i].name;
    const Series top1 = series_of(evals, &EvalLine::top1), top5 = series_of(evals, &EvalLine::top5);
    chart.lines.push_back({top1, i, LineKind::kMain, fmt::format("{}, top-1", name)});
    chart.lines.push_back({top5, second_colour(runs, i), LineKind::kSecond, fmt::format("{}, top-5", name)});
  }
  return chart;
}

Chart rate_chart(const std::vector<ReportRun>& runs) {
  Chart chart{.title = "Learning rate", .y = AxisKind::kFromZero};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    chart.lines.push_back({series_of(runs[i].metrics.steps, &StepLine::lr), i, LineKind::kMain, runs[i].name});
  }
  return chart;
}

Chart speed_chart(const std::vector<ReportRun>& runs) {
  Chart chart{.title = "Images per second", .note = smoothing(runs)};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    add_curve(chart, series_of(runs[i].metrics.steps, &StepLine::images_per_second), runs[i], i);
  }
  chart.y = scale_for(chart.lines, AxisKind::kFromZero);
  return chart;
}

Chart spread_chart(const std::vector<ReportRun>& runs) {
  Chart chart{
      .title = "Busy time of the ranks, seconds a step",
      .note = "Line: the median rank; band: from the least to the most busy one. Waits for others do not count.",
      .y = AxisKind::kFromZero};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Series median;
    Band band;
    median.reserve(runs[i].metrics.health.size());
    band.reserve(runs[i].metrics.health.size());
    for (const HealthLine& line : runs[i].metrics.health) {
      const auto step = static_cast<double>(line.step);
      median.push_back({step, line.busy_s[1]});
      band.push_back({step, line.busy_s[0], line.busy_s[2]});
    }
    if (median.empty()) continue;
    chart.lines.push_back({std::move(median), i, LineKind::kMain, runs[i].name});
    chart.bands.push_back({std::move(band), i});
  }
  return chart;
}

Chart checkpoint_chart(const std::vector<ReportRun>& runs) {
  Chart chart{.title = "Checkpoints, seconds",
              .note = "Bold: how long training stood still; dashed: how long the file took in the background."};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& checkpoints = runs[i].metrics.checkpoints;
    if (checkpoints.empty()) continue;
    chart.lines.push_back({series_of(checkpoints, &CheckpointLine::stall_s), i, LineKind::kMain, runs[i].name});
    chart.lines.push_back({series_of(checkpoints, &CheckpointLine::seconds), second_colour(runs, i), LineKind::kSecond,
                           fmt::format("{}, written", runs[i].name)});
  }
  chart.y = scale_for(chart.lines, AxisKind::kFromZero);
  return chart;
}

// From the first to the last step of all runs, so that the charts can be read against each other.
Interval all_steps(const std::vector<ReportRun>& runs) {
  Interval range;
  for (const ReportRun& run : runs) {
    if (run.metrics.steps.empty()) continue;
    range.add(static_cast<double>(run.metrics.steps.front().step));
    range.add(static_cast<double>(run.metrics.steps.back().step));
  }
  return range;
}

void mark_restarts(Chart& chart, const std::vector<ReportRun>& runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& starts = runs[i].metrics.starts;
    for (const StartLine& start : starts) {
      if (!start.resumed) continue;
      chart.marks.push_back(
          {static_cast<double>(start.step), i,
           fmt::format("{} resumed after step {}, on {}", runs[i].name, start.step, counted(start.ranks, "rank"))});
    }
  }
}

}  // namespace

std::vector<Chart> run_charts(const std::vector<ReportRun>& runs) {
  std::vector<Chart> charts = {loss_chart(runs),  accuracy_chart(runs), rate_chart(runs),
                               speed_chart(runs), spread_chart(runs),   checkpoint_chart(runs)};
  for (Chart& chart : charts) {
    chart.steps = all_steps(runs);
    mark_restarts(chart, runs);
  }
  return charts;
}

std::vector<std::string> remarks(const ReportRun& run) {
  const RunMetrics& m = run.metrics;
  std::vector<std::string> result;
  const auto count = [&](std::int64_t number, const char* one, const char* several) {
    if (number > 0) result.push_back(fmt::format("{} {}", number, number == 1 ? one : several));
  };
  count(count_gaps(series_of(m.steps, &StepLine::loss)), "step has a loss that is not finite: a gap in the curve",
        "steps have a loss that is not finite: gaps in the curve");
  count(count_gaps(series_of(m.evals, &EvalLine::loss)), "evaluation has a loss that is not finite: a gap in the curve",
        "evaluations have a loss that is not finite: gaps in the curve");
  count(m.unknown_events, "line of an event unknown to this version was skipped",
        "lines of events unknown to this version were skipped");
  count(m.bad_lines, "line that is not an event was skipped", "lines that are not events were skipped");
  if (m.cut) result.emplace_back("the last line is cut: the run was killed, or is just writing it");
  if (m.steps.empty()) result.emplace_back("no step has been logged yet");
  if (!run.config_problem.empty()) result.push_back(fmt::format("no config to show: {}", run.config_problem));
  return result;
}

}  // namespace convoy
