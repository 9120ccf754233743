// SPDX-License-Identifier: Apache-2.0
#include "app/watch/text_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace convoy {

namespace {

constexpr std::size_t kLabel = 10, kLeastWidth = 10, kLeastRows = 2;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The mean of the points of each column; NaN where there are none.
std::vector<double> column_means(const std::vector<PlotPoint>& points, std::size_t width) {
  const double first = points.front().x, span = points.back().x - first;
  std::vector<double> sums(width), counts(width);
  for (const PlotPoint& point : points) {
    const double share = span > 0 ? (point.x - first) / span : 0;
    const auto column = std::min(width - 1, static_cast<std::size_t>(share * static_cast<double>(width)));
    sums[column] += point.y;
    counts[column] += 1;
  }
  for (std::size_t c = 0; c < width; ++c)
    sums[c] = std::isfinite(sums[c]) && counts[c] > 0 ? sums[c] / counts[c] : kNone;
  return sums;
}

// Fills columns between two with points linearly; those after the last one stay empty.
void join(std::vector<double>& means) {
  std::size_t last = means.size();
  for (std::size_t c = 0; c < means.size(); ++c) {
    if (std::isnan(means[c])) continue;
    for (std::size_t gap = last + 1; last < means.size() && gap < c; ++gap) {
      const double share = static_cast<double>(gap - last) / static_cast<double>(c - last);
      means[gap] = means[last] + share * (means[c] - means[last]);
    }
    last = c;
  }
}

}  // namespace

std::vector<std::string> text_plot(const std::vector<PlotPoint>& all, std::size_t columns, std::size_t rows) {
  std::vector<PlotPoint> points;
  std::copy_if(all.begin(), all.end(), std::back_inserter(points),
               [](const PlotPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); });
  if (points.empty() || columns < kLabel + 2 + kLeastWidth || rows < kLeastRows) return {};
  const std::size_t width = columns - kLabel - 2;
  std::vector<double> means = column_means(points, width);
  join(means);
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double mean : means) {
    if (std::isnan(mean)) continue;
    low = std::min(low, mean);
    high = std::max(high, mean);
  }
  std::vector<std::string> lines(rows, std::string(width, ' '));
  for (std::size_t c = 0; c < width; ++c) {
    if (std::isnan(means[c])) continue;
    const double share = std::isfinite(high - low) && high > low ? (high - means[c]) / (high - low) : 0.5;
    lines[static_cast<std::size_t>(std::lround(share * static_cast<double>(rows - 1)))][c] = '*';
  }
  for (std::size_t r = 0; r < rows; ++r) {
    const bool labelled = r == 0 || r + 1 == rows;
    const std::string label = labelled ? fmt::format("{:.4g}", r == 0 ? high : low) : "";
    lines[r] = fmt::format("{:>{}} |{}", label, kLabel, lines[r]);
    lines[r].erase(lines[r].find_last_not_of(' ') + 1);
  }
  lines.push_back(fmt::format("{:>{}} +{}", "", kLabel, std::string(width, '-')));
  const std::string begin = fmt::format("{:.0f}", points.front().x), end = fmt::format("{:.0f}", points.back().x);
  const std::size_t gap = width > begin.size() + end.size() ? width - begin.size() - end.size() : 1;
  lines.push_back(fmt::format("{:>{}}  {}{}{}", "step", kLabel, begin, std::string(gap, ' '), end));
  return lines;
}

}  // namespace convoy
