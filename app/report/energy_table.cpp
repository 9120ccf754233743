// SPDX-License-Identifier: Apache-2.0
#include "app/report/energy_table.h"

#include <fmt/format.h>

#include <iterator>

#include "app/report/axis.h"
#include "app/report/markup.h"

namespace convoy {

RunEnergy energy_of(const RunMetrics& run) {
  RunEnergy energy;
  std::int64_t last = 0, epoch_steps = 0;  // the latter of the first epoch, once another one has begun
  double samples = 0;                      // a line stands for the steps since the one before it (log.every_steps)
  for (const StepLine& step : run.steps) {
    samples += step.samples * static_cast<double>(step.step - last);
    if (epoch_steps == 0 && step.epoch == 1) epoch_steps = last;
    last = step.step;
    if (!(step.energy_j > 0)) continue;
    energy.joules += step.energy_j;
    energy.steps = step.step;
    energy.samples = samples;
  }
  energy.epochs = epoch_steps > 0 ? static_cast<double>(energy.steps) / static_cast<double>(epoch_steps) : 0;
  return energy;
}

std::string energy_table(const std::vector<ReportRun>& runs) {
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunEnergy e = energy_of(runs[i].metrics);
    if (!(e.joules > 0) || e.steps == 0) continue;
    fmt::format_to(std::back_inserter(rows),
                   "<tr><td class=\"name\"><span class=\"box run {}\"></span>{}</td><td class=\"number\">{}</td><td "
                   "class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
                   colour_class(i), escape(runs[i].name), short_number(e.joules / 3.6e6),
                   short_number(e.joules / static_cast<double>(e.steps)), short_number(e.joules / e.samples),
                   e.epochs > 0 ? short_number(e.joules / e.epochs) : "-");
  }
  if (rows.empty()) return "";
  return "<section><h2>Energy</h2>\n<div class=\"scroll\"><table><thead><tr><th>run</th><th "
         "class=\"number\">kWh</th><th "
         "class=\"number\">J a step</th><th class=\"number\">J a sample</th><th class=\"number\">J an "
         "epoch</th></tr></thead><tbody>\n" +
         rows +
         "</tbody></table></div>\n<p class=\"note\">Processors (RAPL, packages) and GPUs (NVML) of all nodes; "
         "evaluations and "
         "checkpoints between the steps are included.</p></section>\n";
}

}  // namespace convoy
