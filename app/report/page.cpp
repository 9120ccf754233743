// SPDX-License-Identifier: Apache-2.0
//
// Colours are Okabe and Ito's, changed in lightness until each stands out 3:1 from its background.
#include "app/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "app/base/version.h"
#include "app/report/confusion_table.h"
#include "app/report/energy_table.h"
#include "app/report/markup.h"
#include "app/report/phases.h"
#include "app/report/run_charts.h"
#include "app/report/summary.h"

namespace convoy {

namespace {

using Out = std::back_insert_iterator<std::string>;

constexpr const char* kStyle = R"(
:root{color-scheme:light;--paper:#fff;--ink:#1d2126;--soft:#59616b;--rule:#d9dde2;--shade:#f4f6f8;
--k0:#0072b2;--k1:#c74e00;--k2:#00855f;--k3:#a8447f;--k4:#8f6a00;--k5:#2b8cbe;--k6:#4a4f57;--k7:#7a52c7;
--p0:#4b7fb5;--p1:#e0a100;--p2:#c74e00;--p3:#00957a;--p4:#a8447f}
@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--paper:#15181c;--ink:#e6e9ec;--soft:#a3abb5;
--rule:#363c44;--shade:#1e2329;--k0:#56b4e9;--k1:#ff8b3d;--k2:#2fc99a;--k3:#e68fc4;--k4:#e8bb3a;--k5:#9fd3f5;
--k6:#c8ccd2;--k7:#b79cf2;--p0:#6fa3d8;--p1:#e8bb3a;--p2:#ff8b3d;--p3:#2fc99a;--p4:#e68fc4}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem;max-width:76rem;background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 1rem}h2{font-size:1.15rem;margin:2rem 0 .6rem}
.name,h1,pre,.value{overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.87rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid var(--rule);min-width:4.2rem}
th{font-weight:600;color:var(--soft)}td.name{font-weight:600;min-width:9rem}
td.number{white-space:nowrap}.number{text-align:right;font-variant-numeric:tabular-nums}
small{display:block;font-weight:400;color:var(--soft)}
.note{color:var(--soft);font-size:.84rem;margin:.4rem 0}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr));gap:1.6rem 1.4rem;margin-top:1rem}
figure{margin:0;break-inside:avoid}.wide{margin-top:2rem}
figcaption{margin-bottom:.3rem;color:var(--soft)}figcaption b{color:var(--ink)}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font:12px system-ui,sans-serif}
svg text.x{text-anchor:middle}svg text.y{text-anchor:end}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;padding:0;margin:.5rem 0;font-size:.87rem}
.box{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.45rem}
.run{background:var(--c);height:.35rem;width:1rem;vertical-align:middle}
.c0{--c:var(--k0)}.c1{--c:var(--k1)}.c2{--c:var(--k2)}.c3{--c:var(--k3)}
.c4{--c:var(--k4)}.c5{--c:var(--k5)}.c6{--c:var(--k6)}.c7{--c:var(--k7)}
.p0{fill:var(--p0);background:var(--p0)}.p1{fill:var(--p1);background:var(--p1)}.p2{fill:var(--p2);background:var(--p2)}
.p3{fill:var(--p3);background:var(--p3)}.p4{fill:var(--p4);background:var(--p4)}
.grid{stroke:var(--rule);stroke-width:1}.axis,.tick{stroke:var(--soft);fill:none}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.d1 .line{stroke-dasharray:9 3}.d2 .line{stroke-dasharray:2 4}.d0 .line{stroke-dasharray:12 3 2 3}
.line.faint{stroke-width:1;opacity:.32}.line.second{stroke-width:1.4;stroke-dasharray:5 4}
.dot{fill:var(--c)}.band{fill:var(--c);opacity:.2}
.mark{stroke:var(--c);stroke-width:1;stroke-dasharray:1 3;opacity:.8}
.confusion td,.confusion th{min-width:0;padding:.25rem .4rem}
.hit{background:color-mix(in srgb,var(--k0) var(--s),transparent)}.miss{background:color-mix(in srgb,var(--k1) var(--s),transparent)}
details{border:1px solid var(--rule);border-radius:4px;margin:.5rem 0}
summary{cursor:pointer;padding:.4rem .7rem;overflow-wrap:anywhere}
pre{margin:0;padding:.7rem;background:var(--shade);font-size:.8rem;white-space:pre-wrap}
footer{margin-top:2.5rem;color:var(--soft);font-size:.8rem}
@page{size:A4;margin:14mm}
@media print{body{padding:0;max-width:none;font-size:9.5pt}table{font-size:7.5pt}.charts{grid-template-columns:1fr;gap:8mm}
.charts svg{max-height:66mm}details:not([open]),.screen{display:none}th,td{min-width:0;padding:1mm 1.4mm}td.name{min-width:0}.scroll{overflow:visible}
h2{break-after:avoid}tr{break-inside:avoid}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

std::string title_of(const std::vector<ReportRun>& runs) {
  return runs.size() == 1 ? runs.front().name : fmt::format("{} runs", runs.size());
}

std::string remark_list(const std::vector<ReportRun>& runs) {
  std::string items;
  for (const ReportRun& run : runs) {
    for (const std::string& remark : remarks(run)) {
      fmt::format_to(Out(items), "<li><b>{}</b>: {}</li>\n", escape(run.name), escape(remark));
    }
  }
  return items.empty() ? "" : fmt::format("<ul class=\"note\">\n{}</ul>\n", items);
}

std::string run_legend(const std::vector<ReportRun>& runs) {
  std::string html;
  bool restarted = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    restarted = restarted || summarize_run(runs[i]).restarts > 0;
    if (runs.size() == 1) continue;
    fmt::format_to(Out(html),
                   "<li class=\"name\"><svg class=\"{}\" viewBox=\"0 0 30 8\" style=\"display:inline;width:30px\" "
                   "aria-hidden=\"true\"><path class=\"line\" d=\"M1,4H29\"/></svg> {}</li>\n",
                   colour_class(i), escape(runs[i].name));
  }
  if (restarted) html += "<li>\xE2\x96\xB2 a restart</li>\n";
  return html.empty() ? "" : fmt::format("<ul class=\"legend\">\n{}</ul>\n", html);
}

std::string difference_table(const std::vector<ReportRun>& runs) {
  const auto known =
      std::count_if(runs.begin(), runs.end(), [](const auto& run) { return run.config_problem.empty(); });
  if (known < 2) return "";
  const std::vector<std::string> keys = differing_keys(runs);
  if (keys.empty()) {
    return fmt::format("<p class=\"note\">All runs{} have the same config, but for their names.</p>\n",
                       static_cast<std::size_t>(known) < runs.size() ? " that have one" : "");
  }
  std::string html = "<div class=\"scroll\"><table><thead><tr><th>differs</th>";
  for (const ReportRun& run : runs) fmt::format_to(Out(html), "<th class=\"name\">{}</th>", escape(run.name));
  html += "</tr></thead><tbody>\n";
  for (const std::string& key : keys) {
    fmt::format_to(Out(html), "<tr><td class=\"name\">{}</td>", escape(key));
    for (const ReportRun& run : runs) {
      const auto value = run.values.find(key);
      fmt::format_to(Out(html), "<td class=\"value\">{}</td>", value == run.values.end() ? "-" : escape(value->second));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string config_section(const std::vector<ReportRun>& runs) {
  // Paper shows what differs; folded configs cannot be opened there.
  std::string html = fmt::format("<section{}><h2>Config</h2>\n{}", runs.size() == 1 ? " class=\"screen\"" : "",
                                 difference_table(runs));
  for (const ReportRun& run : runs) {
    if (run.config.empty()) continue;
    fmt::format_to(Out(html), "<details><summary>{}</summary><pre>{}</pre></details>\n", escape(run.name),
                   escape(run.config));
  }
  return html + "</section>\n";
}

}  // namespace

std::string report_page(const std::vector<ReportRun>& runs) {
  const std::string title = escape(title_of(runs));
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<title>{} - convoy "
      "report</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      title, kStyle, title);
  html += summary_table(runs) + remark_list(runs);
  html += "<section><h2>Curves</h2>\n" + run_legend(runs) + "<div class=\"charts\">\n";
  for (const Chart& chart : run_charts(runs)) html += draw_chart(chart);
  html += "</div></section>\n" + confusion_section(runs) + draw_phases(runs) + straggler_table(runs) +
          energy_table(runs) + config_section(runs);
  return html + fmt::format("<footer>convoy {}</footer>\n</body>\n</html>\n", escape(program_version()));
}

}  // namespace convoy
