// SPDX-License-Identifier: Apache-2.0
#include "app/report/confusion_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "app/report/markup.h"

namespace convoy {

namespace {

constexpr std::size_t kMostInMatrix = 20, kWorst = 20, kClassNameLength = 24;

std::string name_of(const Confusion& c, std::size_t k) { return escape(shorten(c.classes[k], kClassNameLength)); }

std::string matrix(const Confusion& c) {
  std::string html = "<table class=\"confusion\"><thead><tr><th>label \\ prediction</th>";
  for (std::size_t k = 0; k < c.classes.size(); ++k) {
    fmt::format_to(std::back_inserter(html), "<th class=\"number\">{}</th>", name_of(c, k));
  }
  html += "<th class=\"number\">correct</th></tr></thead><tbody>\n";
  for (std::size_t label = 0; label < c.classes.size(); ++label) {
    const double samples = c.samples(label);
    fmt::format_to(std::back_inserter(html), "<tr><td class=\"name\">{}</td>", name_of(c, label));
    for (std::size_t k = 0; k < c.classes.size(); ++k) {
      const double share = samples > 0 ? c.at(label, k) / samples : 0;
      fmt::format_to(std::back_inserter(html), "<td class=\"number {}\" style=\"--s:{:.0f}%\">{:.0f}</td>",
                     k == label ? "hit" : "miss", 70 * share, c.at(label, k));
    }
    const std::string correct = samples > 0 ? fmt::format("{:.2f} %", 100 * c.accuracy(label)) : "-";
    fmt::format_to(std::back_inserter(html), "<td class=\"number\">{}</td></tr>\n", correct);
  }
  return html + "</tbody></table>";
}

std::string worst_classes(const Confusion& c) {
  std::vector<std::size_t> worst = c.by_accuracy();
  worst.resize(std::min(worst.size(), kWorst));
  std::string html =
      "<table><thead><tr><th>class</th><th class=\"number\">samples</th><th class=\"number\">correct</th><th>most "
      "often "
      "taken for</th></tr></thead><tbody>\n";
  for (const std::size_t k : worst) {
    const std::size_t other = c.most_taken_for(k);
    const std::string taken =
        other == k ? "-" : fmt::format("{} ({:.2f} %)", name_of(c, other), 100 * c.at(k, other) / c.samples(k));
    fmt::format_to(std::back_inserter(html),
                   "<tr><td class=\"name\">{}</td><td class=\"number\">{:.0f}</td><td class=\"number\">{:.2f} "
                   "%</td><td>{}</td></tr>\n",
                   name_of(c, k), c.samples(k), 100 * c.accuracy(k), taken);
  }
  return html + "</tbody></table>";
}

}  // namespace

std::string confusion_section(const std::vector<ReportRun>& runs) {
  std::string html;
  for (const ReportRun& run : runs) {
    const Confusion& c = run.confusion;
    if (c.empty()) continue;
    const bool small = c.classes.size() <= kMostInMatrix;
    fmt::format_to(std::back_inserter(html), "<p><b>{}</b>{}</p>\n<div class=\"scroll\">{}</div>\n", escape(run.name),
                   small ? "" : fmt::format(": the lowest accuracies of {} classes", c.classes.size()),
                   small ? matrix(c) : worst_classes(c));
  }
  if (html.empty()) return "";
  return "<section><h2>Confusion</h2>\n<p class=\"note\">Of the newest evaluation: a row for each label, a column for "
         "each "
         "prediction.</p>\n" +
         html + "</section>\n";
}

}  // namespace convoy
