// SPDX-License-Identifier: Apache-2.0
#include "app/watch/text_plot.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

using namespace convoy;

TEST_CASE("a falling line goes from the top left to the bottom right") {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 40; ++i) points.push_back({i + 1.0, 40.0 - i});
  const std::vector<std::string> plot = text_plot(points, 32, 5);
  REQUIRE(plot.size() == 7);
  CHECK(plot[0].substr(0, 13) == "      39.5 |*");  // the mean of 40 and 39: two points a column
  CHECK(plot[4].substr(0, 12) == "       1.5 |");
  CHECK(plot[4].back() == '*');
  CHECK(plot[4].size() == 32);
  CHECK(plot[5] == "           +--------------------");
  CHECK(plot[6] == "      step  1                 40");
}

TEST_CASE("gaps are joined, values that are not finite are left out") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::string> plot = text_plot({{0, 1}, {5, nan}, {10, 1}}, 22, 3);
  CHECK(plot[1] == "           |**********");
  CHECK(text_plot({{0, nan}}, 80, 10).empty());
  CHECK(text_plot({{0, 1}}, 15, 10).empty());
  CHECK(text_plot({{3, 1}}, 22, 2).size() == 4);
}
