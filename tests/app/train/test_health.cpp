// SPDX-License-Identifier: Apache-2.0
//
// Which rank holds the others up, and which rank was started with something else. Pure functions.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "app/build/start_check.h"
#include "app/train/health.h"

using namespace convoy;

TEST_CASE("the rank that waits least for the others is the straggler") {
  // All steps take a second: three ranks wait for the third one.
  const std::vector<RankTimes> ranks{
      {1.0, 0.01, 0.5, "n1"}, {1.0, 0.02, 0.4, "n1"}, {1.0, 0.25, 0.05, "n2"}, {1.01, 0.03, 0.45, "n2"}};
  const HealthReport report = summarize(ranks, 10);
  CHECK(report.slowest_rank == 2);
  CHECK(report.slowest_host == "n2");
  CHECK(report.busy.min == doctest::Approx(0.5));
  CHECK(report.busy.median == doctest::Approx(0.56));
  CHECK(report.busy.max == doctest::Approx(0.95));
  CHECK(report.slowdown == doctest::Approx(0.95 / 0.56));
  CHECK(report.step.max == doctest::Approx(1.01));
  CHECK(report.data_wait.median == doctest::Approx(0.02));
  CHECK(report.communication_wait.max == doctest::Approx(0.5));
  CHECK(report.uneven());
  CHECK_FALSE(summarize(ranks, 1).uneven());  // 0.39 s in all: not worth a word
  const std::string line = health_line(report);
  CHECK(line.find("rank 2 on n2") != std::string::npos);
  CHECK(line.find("0.5/0.56/0.95 s") != std::string::npos);
}

TEST_CASE("even ranks, and one alone, hold nobody up") {
  const HealthReport even = summarize({{1, 0, 0.1, "a"}, {1, 0, 0.1, "b"}}, 1000);
  CHECK(even.slowdown == doctest::Approx(1));
  CHECK_FALSE(even.uneven());
  CHECK(summarize({{0, 0, 0, "a"}}, 0).slowdown == 1);  // no step yet: no division by zero
}

TEST_CASE("the odd ones out are those with the rarer text, with a tie not rank 0's") {
  using Ranks = std::vector<int>;
  CHECK(odd_ones_out({"a"}).empty());
  CHECK(odd_ones_out({"a", "a", "a"}).empty());
  CHECK(odd_ones_out({"b", "a", "a"}) == Ranks{0});
  CHECK(odd_ones_out({"a", "b", "a", "c"}) == Ranks{1, 3});
  CHECK(odd_ones_out({"b", "a"}) == Ranks{1});
  CHECK(odd_ones_out({"a", "b"}) == Ranks{1});
}
