// SPDX-License-Identifier: Apache-2.0
//
// One line of metrics.jsonl: numbers, strings and lists by key; damaged lines are refused.
#include <doctest/doctest.h>

#include <cmath>

#include "io/log/metrics_reader.h"

using namespace convoy;

TEST_CASE("fields of a line") {
  MetricsLine fields;
  REQUIRE(fields.parse(R"({"a":1.5,"b":"text \"q\"","c":[1,2,null],"d":null,"e":{"a":9,"x":[7]},"f":true,"g":3})"));
  CHECK(fields.number("a") == 1.5);
  CHECK(fields.text("b") == "text \"q\"");
  REQUIRE(fields.list("c").size() == 3);
  CHECK(fields.list("c")[1] == 2);
  CHECK(std::isnan(fields.list("c")[2]));
  CHECK(std::isnan(fields.number("d")));
  CHECK(std::isnan(fields.number("x")));
  CHECK(fields.integer("g").value() == 3);
  CHECK(!fields.integer("a"));
  CHECK(!fields.integer("b"));
  REQUIRE(fields.parse(R"({"a":2})"));
  CHECK(fields.text("b").empty());  // nothing of the line before is left
  for (const char* bad : {"", "7", "[1]", "\"a\"", "null", "{\"a\":", "{\"a\":NaN}", "{} x", "\xff"}) {
    CAPTURE(bad);
    CHECK(!fields.parse(bad));
  }
  CHECK(fields.parse(R"({"step":-1,"big":1e300})"));
  CHECK(!fields.integer("step"));
  CHECK(!fields.integer("big"));
}
