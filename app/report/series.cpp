// SPDX-License-Identifier: Apache-2.0
#include "app/report/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "layers/base/median.h"

namespace convoy {

namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

// The first of the points of group `i` of `parts`.
std::size_t range_begin(std::size_t points, std::size_t parts, std::size_t i) { return points * i / parts; }

}  // namespace

void Interval::add(double value) {
  if (!std::isfinite(value)) return;
  const bool first = empty();
  low = first ? value : std::min(low, value);
  high = first ? value : std::max(high, value);
}

Series decimate(const Series& series, std::size_t most) {
  if (series.size() <= most) return series;
  const std::size_t parts = std::max<std::size_t>(1, most / 2);
  Series result;
  result.reserve(3 * parts);
  for (std::size_t i = 0; i < parts; ++i) {
    const Point *least = nullptr, *largest = nullptr;
    bool gap = false;
    const std::size_t end = range_begin(series.size(), parts, i + 1);
    for (std::size_t p = range_begin(series.size(), parts, i); p < end; ++p) {
      const Point& point = series[p];
      if (!std::isfinite(point.y)) {
        gap = true;
        continue;
      }
      if (least == nullptr || point.y < least->y) least = &point;
      if (largest == nullptr || point.y > largest->y) largest = &point;
    }
    if (least != nullptr) {
      result.push_back(*std::min(least, largest));  // by address: the earlier one
      if (least != largest) result.push_back(*std::max(least, largest));
    }
    if (gap) result.push_back({series[end - 1].x, kGap});
  }
  return result;
}

Band decimate(const Band& band, std::size_t most) {
  if (band.size() <= most) return band;
  Band result;
  result.reserve(most);
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t begin = range_begin(band.size(), most, i), end = range_begin(band.size(), most, i + 1);
    Interval range;
    for (std::size_t p = begin; p < end; ++p) {
      range.add(band[p].low);
      range.add(band[p].high);
    }
    if (!range.empty()) result.push_back({(band[begin].x + band[end - 1].x) / 2, range.low, range.high});
  }
  return result;
}

Series smooth(const Series& series, double span) {
  const double keep = 1 - 2 / (std::max(1.0, span) + 1);
  double sum = 0, weight = 0;
  Series result;
  result.reserve(series.size());
  for (const Point& point : series) {
    if (!std::isfinite(point.y)) {
      result.push_back({point.x, kGap});
      continue;
    }
    sum = sum * keep + point.y;
    weight = weight * keep + 1;
    result.push_back({point.x, sum / weight});
  }
  return result;
}

std::int64_t count_gaps(const Series& series) {
  return std::count_if(series.begin(), series.end(), [](const Point& point) { return !std::isfinite(point.y); });
}

double median_of(const Series& series) {
  std::vector<double> values;
  values.reserve(series.size());
  for (const Point& point : series) {
    if (std::isfinite(point.y)) values.push_back(point.y);
  }
  return values.empty() ? kGap : median(std::move(values));
}

}  // namespace convoy
