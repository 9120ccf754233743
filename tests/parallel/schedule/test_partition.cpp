// SPDX-License-Identifier: Apache-2.0
//
// Cuts against exhaustive search, the memory limit, and everything that can be wrong with a list of first units.
#include "parallel/schedule/partition.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "layers/base/error.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

// Units with uneven times and no bytes, so that only times count.
std::vector<UnitCost> random_costs(int units, std::uint64_t key) {
  std::vector<UnitCost> costs;
  for (int i = 0; i < units; ++i) {
    const auto at = static_cast<std::uint64_t>(3 * i);
    costs.push_back({random_uniform(key, at), random_uniform(key, at + 1), random_uniform(key, at + 2), 0, 0, 0});
  }
  return costs;
}

double seconds(const std::vector<UnitCost>& costs, const UnitRange& range) {
  double sum = 0;
  for (int i = range.first; i < range.end; ++i) sum += costs[static_cast<std::size_t>(i)].seconds();
  return sum;
}

double slowest_rank(const Schedule& schedule, const std::vector<UnitCost>& costs, const Partition& cut) {
  std::vector<double> ranks(static_cast<std::size_t>(schedule.stages), 0.0);
  for (int v = 0; v < schedule.virtual_stages(); ++v) {
    ranks[static_cast<std::size_t>(schedule.stage_of(v))] += seconds(costs, cut[static_cast<std::size_t>(v)]);
  }
  return *std::max_element(ranks.begin(), ranks.end());
}

void check_whole(const Schedule& schedule, int units, const Partition& cut) {
  REQUIRE(cut.size() == static_cast<std::size_t>(schedule.virtual_stages()));
  int next = 0;
  for (const UnitRange& range : cut) {
    CHECK(range.first == next);
    CHECK(range.end > range.first);
    next = range.end;
  }
  CHECK(next == units);
}

// The least slowest rank over all ways to cut.
double best_by_search(const Schedule& schedule, const std::vector<UnitCost>& costs) {
  const int units = static_cast<int>(costs.size());
  double best = std::numeric_limits<double>::infinity();
  Partition cut;
  const std::function<void(int)> go_on = [&](int first) {
    if (static_cast<int>(cut.size()) + 1 == schedule.virtual_stages()) {
      cut.push_back({first, units});
      best = std::min(best, slowest_rank(schedule, costs, cut));
      cut.pop_back();
      return;
    }
    for (int end = first + 1; end < units; ++end) {
      cut.push_back({first, end});
      go_on(end);
      cut.pop_back();
    }
  };
  go_on(0);
  return best;
}

std::string words_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<UnitInfo> named(const std::vector<std::string>& names) {
  std::vector<UnitInfo> units;
  for (const std::string& name : names) units.push_back({name, {}, {}, {}, 0});
  return units;
}

}  // namespace

TEST_CASE("one chunk per rank: the cut is the best there is") {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int units = stages; units <= 11; ++units) {
      const Schedule schedule = make_schedule("1f1b", stages, 2 * stages, 1);
      const auto costs = random_costs(units, static_cast<std::uint64_t>(100 * stages + units));
      const Partition cut = partition_by_cost(schedule, costs, {});
      check_whole(schedule, units, cut);
      // The same sums in another order.
      CHECK(slowest_rank(schedule, costs, cut) == doctest::Approx(best_by_search(schedule, costs)).epsilon(1e-12));
    }
  }
}

TEST_CASE("several chunks per rank: whole, and never worse than the best partition of single ranges") {
  for (const char* name : {"interleaved", "zb_v"}) {
    for (int stages = 2; stages <= 3; ++stages) {
      const Schedule schedule = make_schedule(name, stages, 2 * stages, 2);
      const auto costs = random_costs(10, static_cast<std::uint64_t>(stages));
      const Partition cut = partition_by_cost(schedule, costs, {});
      check_whole(schedule, 10, cut);
      const double best = best_by_search(schedule, costs);
      CHECK(slowest_rank(schedule, costs, cut) >= best - 1e-12);
      // The linear partition alone is within twice its largest range; moving cuts makes it better, not always best.
      CHECK(slowest_rank(schedule, costs, cut) <= 1.3 * best);
    }
  }
}

TEST_CASE("the memory limit moves the cut, and is named when nothing fits") {
  // The first unit keeps much and is quick: by time alone the first stage would take two units.
  std::vector<UnitCost> costs(4, UnitCost{1, 0, 0, 0, 1e9, 0});
  costs[0].forward = 0.1;
  costs[1].forward = 0.9;
  const Schedule schedule = make_schedule("gpipe", 2, 4, 1);
  CHECK(partition_by_cost(schedule, costs, {}).front() == UnitRange{0, 2});
  costs[0].cache_bytes = 3e9;
  CHECK(partition_by_cost(schedule, costs, {13e9, 1}).front() == UnitRange{0, 1});
  const std::string words = words_of([&] { (void)partition_by_cost(schedule, costs, {5e9, 1}); });
  CHECK(contains(words, "parallel.stage_memory_gb"));
  CHECK(contains(words, "within 5 GB"));
  // Parameters count with gradients and optimizer state.
  std::vector<UnitCost> heavy(2, UnitCost{1, 1, 1, 0, 0, 1e9});
  const Schedule model = make_schedule("model", 2, 1, 1);
  CHECK_NOTHROW((void)partition_by_cost(model, heavy, {4.1e9, 2}));
  CHECK_THROWS_AS((void)partition_by_cost(model, heavy, {3.9e9, 2}), Error);
}

TEST_CASE("more stages than units") {
  const Schedule schedule = make_schedule("interleaved", 4, 4, 2);
  const std::string words = words_of([&] { (void)partition_by_cost(schedule, random_costs(7, 1), {}); });
  CHECK(contains(words, "parallel.stages: 4 stages of 2 chunks need 8 units, and the model has 7 (at most 3 stages"));
}

TEST_CASE("cuts at named units") {
  const Schedule schedule = make_schedule("1f1b", 3, 4, 1);
  const auto units = named({"a", "b", "c", "d"});
  const auto cut = [&](const std::vector<std::string>& names) { return partition_at_units(schedule, units, names); };
  CHECK(cut({"a", "b", "d"}) == Partition{{0, 1}, {1, 3}, {3, 4}});
  const auto words = [&](const std::vector<std::string>& names) { return words_of([&] { (void)cut(names); }); };
  CHECK(contains(words({"a", "x", "d"}), "the model has no unit \"x\" (it has a, b, c, d)"));
  CHECK(contains(words({"b", "c", "d"}), "begins with \"b\" (it must begin with the first unit, \"a\")"));
  CHECK(contains(words({"a", "c", "b"}), "\"b\" does not come after \"c\""));
  CHECK(contains(words({"a", "c", "c"}), "\"c\" does not come after \"c\""));
  CHECK(contains(words({"a", "c"}), "names 2 units for 3 stages"));
}

TEST_CASE("costs travel as text without loss") {
  const auto costs = random_costs(5, 7);
  const auto back = unpack_costs(pack_costs(costs));
  REQUIRE(back.size() == costs.size());
  for (std::size_t i = 0; i < costs.size(); ++i) CHECK(back[i].seconds() == costs[i].seconds());
  CHECK(unpack_costs("").empty());
  CHECK_THROWS_AS((void)unpack_costs("1 2 three"), Error);
}

}  // namespace convoy
