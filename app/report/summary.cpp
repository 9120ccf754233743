// SPDX-License-Identifier: Apache-2.0
#include "app/report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "app/report/axis.h"
#include "app/report/markup.h"
#include "app/report/phases.h"
#include "app/report/run_charts.h"

namespace convoy {

namespace {

constexpr std::size_t kLayoutsShown = 4;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string state_of(const ReportRun& run) {
  const std::string& reason = run.metrics.end_reason;
  if (reason == "finished") return reason;
  if (reason == "signal") return "stopped by a signal";
  if (reason == "max_time") return "stopped at its time limit";
  if (reason == "early_stop") return "stopped early: no improvement";
  if (!reason.empty()) return fmt::format("ended: {}", reason);
  if (!run.holder.empty()) return fmt::format("running ({})", run.holder);
  return "broke off (killed, or an error)";
}

std::string layouts(const std::vector<StartLine>& starts) {
  std::vector<std::string> different;
  for (const StartLine& start : starts) {
    std::string text =
        fmt::format("{}\xC2\xA0=\xC2\xA0{}\xC2\xA0\xC3\x97\xC2\xA0{}", start.ranks, start.replicas, start.stages);
    if (different.empty() || different.back() != text) different.push_back(std::move(text));
  }
  if (different.size() <= kLayoutsShown) return fmt::format("{}", fmt::join(different, ", then "));
  return fmt::format("{} layouts, last {}", different.size(), different.back());
}

void find_best(const std::vector<EvalLine>& evals, Summary& s) {
  const EvalLine *hits = nullptr, *loss = nullptr;
  for (const EvalLine& eval : evals) {
    if (eval.top1 > 0 && (hits == nullptr || eval.top1 > hits->top1)) hits = &eval;
    if (std::isfinite(eval.loss) && (loss == nullptr || eval.loss < loss->loss)) loss = &eval;
  }
  const EvalLine* best = hits != nullptr ? hits : loss;
  if (hits != nullptr) {
    s.best = fmt::format("{:.2f} %", 100 * hits->top1);
  } else {
    s.best = fmt::format("{}{}", loss == nullptr ? "" : "loss ", short_number(loss == nullptr ? kNone : loss->loss));
  }
  if (best != nullptr) s.best_at = fmt::format("epoch {}", best->epoch);
}

}  // namespace

Summary summarize_run(const ReportRun& run) {
  const RunMetrics& m = run.metrics;
  Summary s;
  s.state = state_of(run);
  s.train_loss = m.steps.empty() ? kNone : m.steps.back().loss;
  s.steps = m.steps.empty() ? 0 : m.steps.back().step;
  if (!m.starts.empty()) {
    s.device = m.starts.back().device;
    s.ranks = layouts(m.starts);
    s.total_steps = m.starts.back().total_steps;
  }
  s.restarts = static_cast<std::size_t>(
      std::count_if(m.starts.begin(), m.starts.end(), [](const StartLine& start) { return start.resumed; }));
  s.epochs = m.steps.empty() ? "-" : fmt::format("{}", m.steps.back().epoch + 1);
  find_best(m.evals, s);
  s.images_per_second = median_of(series_of(m.steps, &StepLine::images_per_second));
  s.seconds = total_time(phase_times(m));
  return s;
}

std::string summary_table(const std::vector<ReportRun>& runs) {
  std::string html =
      "<div class=\"scroll\"><table><thead><tr><th>run</th><th>state</th><th>ranks = replicas \xC3\x97 stages</th><th "
      "class=\"number\">steps</th><th class=\"number\">epochs</th><th class=\"number\">train loss</th><th "
      "class=\"number\">best top&#8209;1</th><th class=\"number\">samples/s</th><th class=\"number\">time</th><th "
      "class=\"number\">restarts</th></tr></thead><tbody>\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Summary s = summarize_run(runs[i]);
    fmt::format_to(std::back_inserter(html),
                   "<tr><td class=\"name\"><span class=\"box run {}\"></span>{}<small>{}</small></td><td>{}</td>"
                   "<td>{}</td><td class=\"number\">{}<small>{}</small></td><td class=\"number\">{}</td><td "
                   "class=\"number\">{}</td><td class=\"number\">{}<small>{}</small></td><td "
                   "class=\"number\">{}</td><td class=\"number\">{}</td><td "
                   "class=\"number\">{}</td></tr>\n",
                   colour_class(i), escape(runs[i].name), escape(s.device), escape(s.state), escape(s.ranks), s.steps,
                   s.total_steps > 0 ? fmt::format("of {}", s.total_steps) : "", s.epochs, short_number(s.train_loss),
                   s.best, s.best_at, short_number(s.images_per_second), duration_text(s.seconds), s.restarts);
  }
  return html +
         "</tbody></table></div>\n<p class=\"note\">Train loss: of the last step. Images/s: the median of the logged "
         "steps. Time: steps, evaluations and standing still for checkpoints; starting up does not count.</p>\n";
}

}  // namespace convoy
