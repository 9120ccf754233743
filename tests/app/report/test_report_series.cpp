// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "app/report/axis.h"
#include "app/report/markup.h"
#include "app/report/series.h"

using namespace convoy;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Series line(std::size_t count) {
  Series series;
  for (std::size_t i = 0; i < count; ++i) series.push_back({static_cast<double>(i), std::sin(static_cast<double>(i))});
  return series;
}

std::size_t finite(const Series& series) { return series.size() - static_cast<std::size_t>(count_gaps(series)); }

std::vector<std::string> texts(const std::vector<Tick>& ticks) {
  std::vector<std::string> result;
  for (const Tick& tick : ticks) result.push_back(tick.text);
  return result;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("few points stay as they are") {
  const Series series = line(2000);
  CHECK(decimate(series, 2000) == series);
  CHECK(decimate(Series{}, 10).empty());
}

TEST_CASE("each stretch keeps its smallest and largest point, in their order") {
  const Series series = {{0, 5}, {1, 1}, {2, 9}, {3, 4}, {4, 7}, {5, 8}, {6, 2}, {7, 3}};
  CHECK(decimate(series, 4) == Series{{1, 1}, {2, 9}, {5, 8}, {6, 2}});
}

TEST_CASE("a peak of one step among a million is kept") {
  Series series = line(1000000);
  series[654321].y = 77;
  series[123456].y = -77;
  const Series thin = decimate(series, 2000);
  CHECK(thin.size() <= 2000);
  CHECK(std::count(thin.begin(), thin.end(), Point{654321, 77}) == 1);
  CHECK(std::count(thin.begin(), thin.end(), Point{123456, -77}) == 1);
  for (std::size_t i = 1; i < thin.size(); ++i) CHECK(thin[i].x > thin[i - 1].x);
}

TEST_CASE("a gap stays a gap") {
  Series series = line(100000);
  for (std::size_t i = 40000; i < 60000; ++i) series[i].y = i % 2 == 0 ? kNan : std::numeric_limits<double>::infinity();
  const Series thin = decimate(series, 100);
  CHECK(finite(thin) <= 100);
  CHECK(count_gaps(series) == 20000);
  bool inside = false;
  for (const Point& p : thin) {
    if (p.x > 40000 && p.x < 59999) inside = true;
    if (p.x >= 40000 && p.x < 60000) CHECK(!std::isfinite(p.y));
  }
  CHECK(inside);
  Series all(5000, Point{0, kNan});
  CHECK(finite(decimate(all, 10)) == 0);
}

TEST_CASE("a band is thinned to its outline") {
  const Band band = {{0, 1, 2}, {1, 0, 3}, {2, 5, 6}, {3, 4, 9}};
  CHECK(decimate(band, 2) == Band{{0.5, 0, 3}, {2.5, 4, 9}});
  CHECK(decimate(band, 4) == band);
}

TEST_CASE("smoothing is pandas' ewm") {
  // pandas.Series([1, 2, nan, 4]).ewm(span=3, ignore_na=True).mean() = 1, 5/3, 5/3, 3; a gap here stays one.
  const Series result = smooth({{0, 1}, {1, 2}, {2, kNan}, {3, 4}}, 3);
  CHECK(result[0].y == 1);
  CHECK(result[1].y == doctest::Approx(5.0 / 3));
  CHECK(std::isnan(result[2].y));
  CHECK(result[3].y == doctest::Approx(3));
  const Series same = line(50);
  CHECK(smooth(same, 1) == same);
}

TEST_CASE("median and range pass over gaps") {
  CHECK(median_of({{0, 5}, {1, kNan}, {2, 1}, {3, 3}}) == 3);
  CHECK(std::isnan(median_of({{0, kNan}})));
  Interval range;
  CHECK(range.empty());
  range.add(kNan);
  CHECK(range.empty());
  range.add(-2);
  range.add(7);
  range.add(-std::numeric_limits<double>::infinity());
  CHECK(range.low == -2);
  CHECK(range.high == 7);
}

TEST_CASE("ticks are round numbers") {
  CHECK(texts(Axis({0, 1}, AxisKind::kFromZero, 0, 100).ticks(5)) ==
        Texts{"0", "0.5", "1.0"});  // 0.2 is just below a fifth of 0 to 1.04
  CHECK(texts(Axis({1, 100000}, AxisKind::kWhole, 0, 100).ticks(5)) == Texts{"0", "50k", "100k"});
  CHECK(texts(Axis({1, 3}, AxisKind::kWhole, 0, 100).ticks(7)) == Texts{"1", "2", "3"});
  CHECK(texts(Axis({0.01, 100}, AxisKind::kLog, 0, 100).ticks(6)) == Texts{"0.01", "0.1", "1", "10", "100"});
  CHECK(texts(Axis({1e-5, 2e-5}, AxisKind::kFromZero, 0, 100).ticks(4)) == Texts{"0", "1e-05", "2e-05"});
}

TEST_CASE("an axis has a length whatever the values") {
  for (const Interval data : {Interval{}, Interval{3, 3}, Interval{0, 0}, Interval{-1.7e308, 1.7e308},
                              Interval{1e-320, 1.7e308}, Interval{5, 5 + 1e-12}}) {
    for (const AxisKind kind : {AxisKind::kLinear, AxisKind::kFromZero, AxisKind::kLog, AxisKind::kWhole}) {
      const Axis axis(data, kind, 10, 90);
      const double at = axis.at(data.empty() ? 0.5 : data.low);
      CHECK(std::isfinite(at));
      if (std::abs(data.low) < 1e300) CHECK((at >= 10 && at <= 90));  // larger ones lie outside of the picture
      CHECK(axis.ticks(6).size() < 100);
    }
  }
  const Axis log({1, 100}, AxisKind::kLog, 0, 100);
  CHECK(log.at(10) == doctest::Approx(50));
}

TEST_CASE("numbers and durations for people") {
  CHECK(short_number(0.123456) == "0.1235");
  CHECK(short_number(12345) == "12.35k");
  CHECK(short_number(4.5e6) == "4.5M");
  CHECK(short_number(kNan) == "-");
  CHECK(short_number(-std::numeric_limits<double>::infinity()) == "-infinity");
  CHECK(duration_text(0.0125) == "12.5 ms");
  CHECK(duration_text(12.345) == "12.3 s");
  CHECK(duration_text(245) == "4 min 05 s");
  CHECK(duration_text(3 * 3600 + 20 * 60 + 59) == "3 h 20 min");
}

TEST_CASE("text becomes no markup") {
  CHECK(escape("<script>a('b') & \"c\"</script>") == "&lt;script&gt;a(&#39;b&#39;) &amp; &quot;c&quot;&lt;/script&gt;");
  CHECK(escape(std::string("a\x01"
                           "b\x1b\n\x7f",
                           6)) == "a b \n ");
  CHECK(escape("\xC3\xBC") == "\xC3\xBC");
  CHECK(shorten("12345", 5) == "12345");
  CHECK(shorten("123456", 5) == "1234\xE2\x80\xA6");
  CHECK(shorten("\xC3\xBC\xC3\xBC\xC3\xBC", 2) == "\xC3\xBC\xE2\x80\xA6");
  CHECK(colour_class(3) == "c3");
  CHECK(colour_class(9) == "c1 d1");
}
