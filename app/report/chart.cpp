// SPDX-License-Identifier: Apache-2.0
#include "app/report/chart.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "app/report/markup.h"

namespace convoy {

namespace {

constexpr double kWidth = 560, kHeight = 280;  // the picture's own units; a page shows it at any size
constexpr double kLeft = 56, kRight = 548, kTop = 10, kBottom = 246;
constexpr std::size_t kMaxDots = 60;
constexpr double kWideRange = 50;

using Out = std::back_insert_iterator<std::string>;

// "M1,2L3,4": a gap ends a subpath; a point alone between gaps becomes a dot by its round ends.
std::string path_of(const Series& points, const Axis& x, const Axis& y) {
  std::string path;
  path.reserve(points.size() * 12);
  bool pen_down = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    if (!std::isfinite(p.y)) {
      pen_down = false;
      continue;
    }
    fmt::format_to(Out(path), "{}{:.1f},{:.1f}", pen_down ? 'L' : 'M', x.at(p.x), y.at(p.y));
    const bool alone = !pen_down && (i + 1 == points.size() || !std::isfinite(points[i + 1].y));
    if (alone) path += "h0.1";
    pen_down = true;
  }
  return path;
}

std::string path_of(const Band& points, const Axis& x, const Axis& y) {
  std::string path;
  for (auto p = points.begin(); p != points.end(); ++p) {
    fmt::format_to(Out(path), "{}{:.1f},{:.1f}", path.empty() ? 'M' : 'L', x.at(p->x), y.at(p->high));
  }
  for (auto p = points.rbegin(); p != points.rend(); ++p) {
    fmt::format_to(Out(path), "L{:.1f},{:.1f}", x.at(p->x), y.at(p->low));
  }
  return path + "Z";
}

Band finite(const Band& band) {
  Band result;
  result.reserve(band.size());
  for (const BandPoint& p : band) {
    if (std::isfinite(p.low) && std::isfinite(p.high)) result.push_back(p);
  }
  return result;
}

std::string value_words(double value, bool percent) {
  return percent ? fmt::format("{:.2f} %", 100 * value) : short_number(value);
}

void draw_axes(std::string& svg, const Axis& x, const Axis& y, bool percent) {
  for (const Tick& tick : y.ticks(6)) {
    const double at = y.at(tick.value);
    fmt::format_to(Out(svg), "<path class=\"grid\" d=\"M{:.1f},{:.1f}H{:.1f}\"/>", kLeft, at, kRight);
    const std::string text = percent ? fmt::format("{:g}", 100 * tick.value) : tick.text;
    fmt::format_to(Out(svg), "<text class=\"y\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", kLeft - 6, at + 4, text);
  }
  for (const Tick& tick : x.ticks(7)) {
    const double at = x.at(tick.value);
    fmt::format_to(Out(svg), "<path class=\"tick\" d=\"M{:.1f},{:.1f}v5\"/>", at, kBottom);
    fmt::format_to(Out(svg), "<text class=\"x\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", at, kBottom + 18, tick.text);
  }
  fmt::format_to(Out(svg), "<path class=\"axis\" d=\"M{:.1f},{:.1f}V{:.1f}H{:.1f}\"/>", kLeft, kTop, kBottom, kRight);
  fmt::format_to(Out(svg), "<text class=\"y\" x=\"{:.1f}\" y=\"{:.1f}\">step</text>", kRight, kBottom + 32);
}

void draw_line(std::string& svg, const ChartLine& line, const Axis& x, const Axis& y, bool percent) {
  static constexpr const char* kClasses[] = {"line", "line faint", "line second"};
  const Series points = decimate(line.points, kPointsOfALine);
  fmt::format_to(Out(svg), "<g class=\"{}\"><path class=\"{}\" d=\"{}\"/>", colour_class(line.colour),
                 kClasses[static_cast<std::size_t>(line.kind)], path_of(points, x, y));
  if (line.kind == LineKind::kSecond && points.size() <= kMaxDots) {
    for (const Point& p : points) {
      if (!std::isfinite(p.y)) continue;
      fmt::format_to(Out(svg),
                     "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\"><title>{}, step {:.0f}: {}</title>"
                     "</circle>",
                     x.at(p.x), y.at(p.y), escape(line.what), p.x, value_words(p.y, percent));
    }
  }
  svg += "</g>\n";
}

// Two marks of one run that fall on the same place are one.
void draw_marks(std::string& svg, const Chart& chart, const Axis& x) {
  std::set<std::pair<std::size_t, long>> drawn;
  for (const ChartMark& mark : chart.marks) {
    const double at = x.at(mark.x);
    if (!drawn.insert({mark.colour, std::lround(at)}).second) continue;
    fmt::format_to(Out(svg),
                   "<g class=\"{}\"><path class=\"mark\" d=\"M{:.1f},{:.1f}V{:.1f}\"/><path class=\"dot\" "
                   "d=\"M{:.1f},{:.1f}l-4,7h8z\"><title>{}</title></path></g>",
                   colour_class(mark.colour), at, kTop, kBottom, at, kBottom, escape(mark.what));
  }
}

Interval range_of(const Chart& chart) {
  Interval range;
  for (const ChartLine& line : chart.lines) {
    for (const Point& p : line.points) range.add(p.y);
  }
  for (const ChartBand& band : chart.bands) {
    for (const BandPoint& p : band.points) {
      range.add(p.low);
      range.add(p.high);
    }
  }
  return range;
}

Interval steps_of(const Chart& chart) {
  Interval range = chart.steps;
  for (const ChartLine& line : chart.lines) {
    if (line.points.empty()) continue;
    range.add(line.points.front().x);
    range.add(line.points.back().x);
  }
  for (const ChartMark& mark : chart.marks) range.add(mark.x);
  return range;
}

}  // namespace

AxisKind scale_for(const std::vector<ChartLine>& lines, AxisKind otherwise) {
  Interval range;
  for (const ChartLine& line : lines) {
    for (const Point& p : line.points) range.add(p.y);
  }
  return !range.empty() && range.low > 0 && range.high >= kWideRange * range.low ? AxisKind::kLog : otherwise;
}

std::string draw_chart(const Chart& chart) {
  const Interval values = range_of(chart);
  if (values.empty()) return "";
  const Axis x(steps_of(chart), AxisKind::kWhole, kLeft, kRight);
  const Axis y(values, chart.y, kBottom, kTop);
  std::string svg = fmt::format(
      "<figure><figcaption><b>{}</b>{}</figcaption>\n<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" "
      "aria-label=\"{}\">\n",
      escape(chart.title), chart.y == AxisKind::kLog ? ", logarithmic" : "", kWidth, kHeight, escape(chart.title));
  draw_axes(svg, x, y, chart.percent);
  svg += '\n';
  draw_marks(svg, chart, x);
  for (const ChartBand& band : chart.bands) {
    const Band points = decimate(finite(band.points), kPointsOfALine);
    if (points.empty()) continue;
    fmt::format_to(Out(svg), "<g class=\"{}\"><path class=\"band\" d=\"{}\"/></g>\n", colour_class(band.colour),
                   path_of(points, x, y));
  }
  for (const LineKind kind : {LineKind::kFaint, LineKind::kSecond, LineKind::kMain}) {  // the bold ones on top
    for (const ChartLine& line : chart.lines) {
      if (line.kind == kind) draw_line(svg, line, x, y, chart.percent);
    }
  }
  svg += "</svg>\n";
  if (!chart.note.empty()) fmt::format_to(Out(svg), "<p class=\"note\">{}</p>\n", escape(chart.note));
  return svg + "</figure>\n";
}

}  // namespace convoy
