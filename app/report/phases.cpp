// SPDX-License-Identifier: Apache-2.0
#include "app/report/phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "app/report/axis.h"
#include "app/report/markup.h"
#include "app/report/series.h"

namespace convoy {

namespace {

constexpr double kBarsWidth = 1140, kRow = 30, kBar = 18, kBarsLeft = 210, kBarsRight = 1020;
constexpr std::size_t kNameLength = 30;

using Out = std::back_insert_iterator<std::string>;

double known(double seconds) { return std::isfinite(seconds) && seconds > 0 ? seconds : 0; }

// How many steps the logged one stands for: since the one before it, or since the start before it.
double steps_meant(const RunMetrics& run, std::size_t i) {
  if (i > 0) return static_cast<double>(run.steps[i].step - run.steps[i - 1].step);
  const std::int64_t before = run.starts.empty() ? run.steps[0].step - 1 : run.starts.front().step;
  return static_cast<double>(std::max<std::int64_t>(1, run.steps[0].step - before));
}

}  // namespace

PhaseTimes phase_times(const RunMetrics& run) {
  double steps = 0, data = 0, ranks = 0, evaluation = 0, stalls = 0;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const StepLine& line = run.steps[i];
    const double count = steps_meant(run, i);
    steps += count * known(line.samples / line.images_per_second);
    if (run.health.empty()) data += count * known(line.data_wait_s);
  }
  for (const HealthLine& line : run.health) {
    data += known(line.steps * line.data_wait_s[1]);
    ranks += known(line.steps * line.communication_wait_s[1]);
  }
  for (const EvalLine& line : run.evals) evaluation += known(line.seconds);
  for (const CheckpointLine& line : run.checkpoints) stalls += known(line.stall_s);
  data = std::min(data, steps);
  ranks = std::min(ranks, steps - data);
  return {steps - data - ranks, data, ranks, evaluation, stalls};
}

double total_time(const PhaseTimes& times) { return std::accumulate(times.begin(), times.end(), 0.0); }

std::string draw_phases(const std::vector<ReportRun>& runs) {
  double most = 0;
  std::vector<PhaseTimes> times;
  times.reserve(runs.size());
  for (const ReportRun& run : runs) {
    times.push_back(phase_times(run.metrics));
    most = std::max(most, total_time(times.back()));
  }
  if (most <= 0) return "";
  std::string html = "<figure class=\"wide\"><figcaption><b>Time by phase</b></figcaption>\n<ul class=\"legend\">";
  for (const RunPhase& phase : kRunPhases) {
    fmt::format_to(Out(html), "<li><span class=\"box {}\"></span>{}</li>", phase.css, phase.name);
  }
  fmt::format_to(Out(html), "</ul>\n<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"Time by phase\">\n",
                 kBarsWidth, kRow * static_cast<double>(runs.size()));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const double y = kRow * static_cast<double>(i) + (kRow - kBar) / 2;
    fmt::format_to(Out(html), "<text class=\"y\" x=\"{:g}\" y=\"{:g}\">{}<title>{}</title></text>", kBarsLeft - 10,
                   y + 13, escape(shorten(runs[i].name, kNameLength)), escape(runs[i].name));
    double x = kBarsLeft;
    const double total = total_time(times[i]);
    for (std::size_t p = 0; p < kRunPhaseCount; ++p) {
      const double width = times[i][p] / most * (kBarsRight - kBarsLeft);
      if (width < 0.05) continue;
      fmt::format_to(Out(html),
                     "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:g}\" width=\"{:.1f}\" height=\"{:g}\"><title>{}: {} "
                     "({:.1f} %)</title></rect>",
                     kRunPhases[p].css, x, y, width, kBar, kRunPhases[p].name, duration_text(times[i][p]),
                     100 * times[i][p] / total);
      x += width;
    }
    fmt::format_to(Out(html), "<text class=\"left\" x=\"{:.1f}\" y=\"{:g}\">{}</text>\n", x + 8, y + 13,
                   duration_text(total));
  }
  html += "</svg>\n<div class=\"scroll\"><table><thead><tr><th>run</th>";
  for (const RunPhase& phase : kRunPhases) fmt::format_to(Out(html), "<th class=\"number\">{}</th>", phase.name);
  html += "</tr></thead><tbody>\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    fmt::format_to(Out(html), "<tr><td class=\"name\">{}</td>", escape(runs[i].name));
    const double total = total_time(times[i]);
    for (const double seconds : times[i]) {
      fmt::format_to(Out(html), "<td class=\"number\">{}</td>",
                     seconds == 0 ? "-" : fmt::format("{} ({:.1f} %)", duration_text(seconds), 100 * seconds / total));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div></figure>\n";
}

std::string straggler_table(const std::vector<ReportRun>& runs) {
  std::string rows;
  for (const ReportRun& run : runs) {
    if (run.metrics.health.empty()) continue;
    std::map<std::pair<std::int64_t, std::string>, std::size_t> counts;
    Series slowdowns;
    slowdowns.reserve(run.metrics.health.size());
    const HealthLine* worst = &run.metrics.health.front();
    for (const HealthLine& line : run.metrics.health) {
      ++counts[{line.slowest_rank, line.slowest_host}];
      slowdowns.push_back({static_cast<double>(line.step), line.slowdown});
      if (line.slowdown > worst->slowdown) worst = &line;
    }
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto most = std::max_element(counts.begin(), counts.end(), fewer);
    const double share = static_cast<double>(most->second) / static_cast<double>(run.metrics.health.size());
    fmt::format_to(Out(rows),
                   "<tr><td class=\"name\">{}</td><td>rank {} on {}</td><td class=\"number\">{:.0f} %</td><td "
                   "class=\"number\">{:.3g}</td><td class=\"number\">{:.3g}</td><td>step {}, rank {} on {}</td></tr>\n",
                   escape(run.name), most->first.first, escape(most->first.second), 100 * share, median_of(slowdowns),
                   worst->slowdown, worst->step, worst->slowest_rank, escape(worst->slowest_host));
  }
  if (rows.empty()) return "";
  return "<section><h2>Stragglers</h2>\n<p class=\"note\">The busiest rank of each report, and its busy time over the "
         "median rank's.</p>\n<div class=\"scroll\"><table><thead><tr><th>run</th><th>most often slowest</th><th "
         "class=\"number\">of the reports</th><th class=\"number\">median slowdown</th><th class=\"number\">largest "
         "slowdown</th><th>at</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div></section>\n";
}

}  // namespace convoy
