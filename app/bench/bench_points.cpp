// SPDX-License-Identifier: Apache-2.0
#include "app/bench/bench_points.h"

#include <charconv>
#include <sstream>
#include <system_error>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

int parse_ranks(const std::string& word, int world_ranks) {
  const std::string digits = word.substr(word.find('=') + 1);
  int ranks = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), ranks);
  if (problem != std::errc() || end != digits.data() + digits.size() || ranks < 1) {
    fail_usage("--case: \"{}\" is not a number of ranks", word);
  }
  if (ranks > world_ranks) {
    fail_usage("--case: {} ranks are wanted, and {} were started (mpirun -n {} convoy bench ...)", ranks, world_ranks,
               ranks);
  }
  return ranks;
}

BenchPoint parse_case(const std::string& text, int world_ranks) {
  BenchPoint point;
  point.words = text;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word.find('=') == std::string::npos || word.front() == '=') {
      fail_usage("--case: \"{}\" is not KEY=VALUE (write words like ranks=1 parallel.mode=pipeline)", word);
    }
    if (word.starts_with("ranks=") || word.starts_with("processes=")) {
      if (point.ranks > 0) fail_usage("--case \"{}\": one of ranks=N and processes=N, once", text);
      point.ranks = parse_ranks(word, world_ranks);
      point.independent = word.starts_with("processes=");
    } else {
      point.overrides.push_back(word);
    }
  }
  point.of_case = point.overrides.size();
  return point;
}

}  // namespace

std::vector<BenchPoint> bench_points(const std::vector<std::string>& cases, const std::vector<Sweep>& sweeps,
                                     int world_ranks) {
  std::vector<BenchPoint> points;
  points.reserve(cases.size());
  for (const std::string& text : cases) points.push_back(parse_case(text, world_ranks));
  if (points.empty()) points.emplace_back();
  for (const Sweep& sweep : sweeps) {
    std::vector<BenchPoint> next;
    for (const BenchPoint& point : points) {
      for (const std::string& value : sweep.values) {
        BenchPoint& more = next.emplace_back(point);
        more.overrides.push_back(sweep.key + "=" + value);
        more.words += (more.words.empty() ? "" : " ") + more.overrides.back();
      }
    }
    points = std::move(next);
  }
  return points;
}

}  // namespace convoy
