// SPDX-License-Identifier: Apache-2.0
//
// A curve in characters.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace convoy {

struct PlotPoint {
  double x = 0, y = 0;
};

/// Lines of at most `columns` characters: `rows` of the curve with the range of y at their left, then an axis with the
/// range of x. Each column shows the mean of the points that fall into it; points that are not finite are left out, and
/// columns without points are joined by a line. Points come with rising x. Empty without finite points or without room.
[[nodiscard]] std::vector<std::string> text_plot(const std::vector<PlotPoint>& points, std::size_t columns,
                                                 std::size_t rows);

}  // namespace convoy
