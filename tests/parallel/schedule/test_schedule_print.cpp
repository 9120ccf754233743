// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule_print.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>

namespace convoy {

namespace {

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

std::string without_escapes(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

TEST_CASE("a grid of whole backwards") {
  CHECK(schedule_grid(make_schedule("1f1b", 2, 3, 1), false) ==
        "stage 0  F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"
        "stage 1  .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n"
        "step: 12 units, of which the stage that idles most idles 3 (25%)\n"
        "activations in flight: at most 2 on a stage\n");
}

TEST_CASE("a grid of halves; the second chunk has small letters") {
  CHECK(schedule_grid(make_schedule("zb_v", 2, 3, 2), false) ==
        "stage 0  F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 f2 i2 w2 I1 W1 I2 W2 .\n"
        "stage 1  .  F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 I1 i2 I2 W1 w2 W2\n"
        "step: 19 units, of which the stage that idles most idles 0 (0%)\n"
        "activations in flight: at most 4 on a stage\n");
}

TEST_CASE("cells are as wide as the longest name") {
  const std::string grid = schedule_grid(make_schedule("interleaved", 1, 1, 3), false);
  CHECK(grid.substr(0, grid.find('\n')) == "stage 0  F0   F0.1 F0.2 B0.2 ---- B0.1 ---- B0   ----");
}

TEST_CASE("four stages and eight microbatches fit on a wide screen") {
  for (const char* name : {"gpipe", "1f1b", "zero_bubble"}) {
    CHECK(widest_line(schedule_grid(make_schedule(name, 4, 8, 1), false)) <= 120);
  }
  for (const char* name : {"interleaved", "zb_v"}) {
    CHECK(widest_line(schedule_grid(make_schedule(name, 4, 8, 2), false)) <= 120);
  }
}

TEST_CASE("colours by kind and chunk, the same text") {
  for (const int microbatches : {2, 12}) {
    const Schedule schedule = make_schedule("zb_v", 2, microbatches, 2);
    const std::string grid = schedule_grid(schedule, true);
    CHECK(without_escapes(grid) == schedule_grid(schedule, false));
    for (const std::string cell : {"\x1b[30;44mF0", "\x1b[30;104mf0", "\x1b[30;46mI0", "\x1b[30;43mW0"}) {
      CHECK(grid.find(cell) != std::string::npos);
    }
  }
  const Schedule whole = make_schedule("gpipe", 2, 2, 1);
  CHECK(without_escapes(schedule_grid(whole, true)) == schedule_grid(whole, false));
}

}  // namespace convoy
