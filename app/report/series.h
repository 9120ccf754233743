// SPDX-License-Identifier: Apache-2.0
//
// Curves as lists of points: smoothed, and thinned to what a picture can show. Pure functions. Invariant: x rises, and
// a y that is not finite is a gap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace convoy {

struct Point {
  double x = 0, y = 0;
  bool operator==(const Point&) const = default;
};
using Series = std::vector<Point>;

/// A range of values over x.
struct BandPoint {
  double x = 0, low = 0, high = 0;
  bool operator==(const BandPoint&) const = default;
};
using Band = std::vector<BandPoint>;

/// The smallest and largest of the values seen; low > high when there was none.
struct Interval {
  double low = 1, high = 0;
  [[nodiscard]] bool empty() const { return !(low <= high); }
  /// Passes over what is not finite.
  void add(double value);
};

/// At most `most` finite points: of each group of equally many points, the smallest and the largest one, in their
/// order, so that no peak is lost. A group with a gap ends in one (a NaN between its points and the next).
[[nodiscard]] Series decimate(const Series& series, std::size_t most);

/// At most `most` points: over each group the lowest low and the highest high, at the middle of the group.
[[nodiscard]] Band decimate(const Band& band, std::size_t most);

/// The exponential moving average with weights (1 - 2 / (span + 1))^age, normalised, as pandas' ewm(span=...).mean():
/// the first value is the series' own. Gaps stay gaps and count for nothing.
[[nodiscard]] Series smooth(const Series& series, double span);

/// How many points are gaps.
[[nodiscard]] std::int64_t count_gaps(const Series& series);

/// The median of the finite values; NaN of none.
[[nodiscard]] double median_of(const Series& series);

}  // namespace convoy
