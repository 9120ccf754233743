// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/simulator.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "layers/base/error.h"
#include "tests/parallel/schedule/schedule_text.h"

namespace convoy {

namespace {

// "F0 0-1, B0 1-3": what takes time on a stage.
std::string times_of(const Timeline& timeline, std::size_t stage) {
  std::string text;
  for (const TimedAction& timed : timeline.stages.at(stage)) {
    if (timed.end == timed.start) continue;
    text += fmt::format("{}{} {:g}-{:g}", text.empty() ? "" : ", ", action_name(timed.action), timed.start, timed.end);
  }
  return text;
}

std::string complaint(const Schedule& schedule, const CostModel& costs) {
  try {
    (void)simulate(schedule, costs);
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

}  // namespace

TEST_CASE("stages of unequal cost wait for the slower one") {
  const Schedule schedule = make_schedule("gpipe", 2, 2, 1);
  CostModel costs = unit_costs(schedule);
  costs.chunks[0] = {.forward = 1, .backward_input = 2, .backward_weight = 1};
  costs.chunks[1] = {.forward = 2, .backward_input = 1, .backward_weight = 3};
  Timeline timeline = simulate(schedule, costs);
  CHECK(times_of(timeline, 0) == "F0 0-1, F1 1-2, B0 9-12, B1 13-16");
  CHECK(times_of(timeline, 1) == "F0 1-3, F1 3-5, B0 5-9, B1 9-13");
  CHECK(timeline.seconds == 16);
  CHECK(timeline.idle == std::vector<double>{8, 0});
  CHECK(timeline.bubble() == 8);
  costs.optimizer = {1, 5};
  timeline = simulate(schedule, costs);
  CHECK(timeline.seconds == 18);
  CHECK(timeline.stages[1].back().start == 13);
}

TEST_CASE("a gradient leaves after the first half of its backward") {
  const Schedule schedule = schedule_of(1, 1, {"F0 I0 W0 Reduce Step", "F0 I0 W0 Reduce Step"});
  CostModel costs = unit_costs(schedule);
  costs.chunks[1].backward_weight = 5;
  const Timeline timeline = simulate(schedule, costs);
  CHECK(times_of(timeline, 0) == "F0 0-1, I0 3-4, W0 4-5");
  CHECK(times_of(timeline, 1) == "F0 1-2, I0 2-3, W0 3-8");
  CHECK(timeline.seconds == 8);
}

TEST_CASE("a link takes its time, one message after the other in each direction") {
  const Schedule schedule = make_schedule("gpipe", 2, 2, 1);
  CostModel costs = unit_costs(schedule);
  costs.chunks[0].output_bytes = 10;
  costs.chunks[1].output_bytes = 1e9;  // nobody needs it
  costs.links = {{.latency = 0.5, .bytes_per_second = 4}};
  const Timeline timeline = simulate(schedule, costs);
  // Made at 1 and 2, there at 4 and 7; gradients made at 10 and 12, there at 13 and 16.
  CHECK(times_of(timeline, 0) == "F0 0-1, F1 1-2, B0 13-15, B1 16-18");
  CHECK(times_of(timeline, 1) == "F0 4-5, F1 7-8, B0 8-10, B1 10-12");
}

TEST_CASE("the way from the last stage to the first is the last link") {
  const Schedule schedule = forward_only(make_schedule("interleaved", 3, 3, 2));
  CostModel costs = unit_costs(schedule);
  costs.links = {{.latency = 1}, {.latency = 2}, {.latency = 10}};
  const Timeline timeline = simulate(schedule, costs);
  CHECK(times_of(timeline, 2) == "F0 5-6, F1 7-8, F2 9-10, F0.1 21-22, F1.1 31-32, F2.1 41-42");
  CHECK(times_of(timeline, 0) == "F0 0-1, F1 1-2, F2 2-3, F0.1 16-17, F1.1 26-27, F2.1 36-37");
}

TEST_CASE("between two stages there is one link") {
  const Schedule schedule = forward_only(make_schedule("interleaved", 2, 2, 2));
  CostModel costs = unit_costs(schedule);
  costs.links = {{.latency = 1}, {.latency = 100}};
  CHECK(times_of(simulate(schedule, costs), 1) == "F0 2-3, F1 3-4, F0.1 6-7, F1.1 7-8");
}

TEST_CASE("what stays on a rank takes no link") {
  const Schedule schedule = forward_only(make_schedule("zb_v", 2, 1, 2));
  CostModel costs = unit_costs(schedule);
  costs.links = {{.latency = 5}};
  CHECK(times_of(simulate(schedule, costs), 1) == "F0 6-7, F0.1 7-8");
  CHECK(times_of(simulate(schedule, costs), 0) == "F0 0-1, F0.1 13-14");
}

TEST_CASE("buckets are reduced while the last backward goes on") {
  const Schedule schedule = make_schedule("one_stage", 1, 2, 1);
  CostModel costs = unit_costs(schedule);
  costs.chunks[0].backward_weight = 3;
  costs.optimizer = {1};
  costs.buckets = {{{.seconds = 5}}};
  CHECK(times_of(simulate(schedule, costs), 0) == "F0 0-1, B0 1-5, F1 5-6, B1 6-10, Reduce 10-15, Step 15-16");
  // Full at 7 and 10: reduced from 7 to 9 and from 10 to 11.
  costs.buckets = {{{.ready = 0.25, .seconds = 2}, {.ready = 1, .seconds = 1}}};
  CHECK(simulate(schedule, costs).seconds == 12);
  // From 7 to 12, and then to 13.
  costs.buckets[0][0].seconds = 5;
  CHECK(simulate(schedule, costs).seconds == 14);
  // While the first is reduced, from 7 to 9, a quarter of the speed is lost: the backward ends at 10.5.
  costs.buckets[0][0].seconds = 2;
  costs.contention = 0.25;
  CHECK(simulate(schedule, costs).seconds == 12.5);
}

TEST_CASE("a stage's chunks fill their buckets one after the other") {
  // Stage 0 has the first layers and, of two chunks, the last but one: its last backward is that of chunk 0.
  const Schedule schedule = make_schedule("interleaved", 2, 2, 2);
  CostModel costs = unit_costs(schedule);
  costs.buckets = {{{.chunk = 1, .seconds = 1}, {.chunk = 0, .seconds = 1}}, {}};
  const double plain = simulate(schedule, unit_costs(schedule)).seconds;
  CHECK(simulate(schedule, costs).seconds == plain + 1);  // that of chunk 1 is hidden
  costs.buckets[0][0].seconds = 100;
  CHECK(simulate(schedule, costs).seconds > plain + 90);
}

TEST_CASE("memory: gpipe keeps all microbatches, 1f1b as many as there are stages behind") {
  const auto peaks = [](const Schedule& schedule) {
    CostModel costs = unit_costs(schedule);
    for (ChunkCost& chunk : costs.chunks) chunk.cache_bytes = 10, chunk.resident_bytes = 100;
    return simulate(schedule, costs).peak_bytes;
  };
  CHECK(peaks(make_schedule("gpipe", 4, 8, 1)) == std::vector<double>{180, 180, 180, 180});
  CHECK(peaks(make_schedule("1f1b", 4, 8, 1)) == std::vector<double>{140, 130, 120, 110});
  CHECK(peaks(make_schedule("zero_bubble", 4, 8, 1)) == std::vector<double>{140, 140, 140, 140});
  CHECK(peaks(make_schedule("zb_v", 4, 8, 2)) == std::vector<double>{280, 280, 280, 280});
  CHECK(peaks(forward_only(make_schedule("1f1b", 4, 8, 1))) == std::vector<double>{110, 110, 110, 110});
}

TEST_CASE("lists that cannot be run name what waits") {
  const Schedule schedule = schedule_of(1, 1, {"B0 F0", "F0 B0"});
  CHECK(complaint(schedule, unit_costs(schedule)) ==
        "schedule 'test' cannot be run: stage 0, action 0: B0 waits for F0 of stage 0; stage 1, action 0: F0 waits for "
        "F0 "
        "of stage 0");
  const Schedule unknown = schedule_of(1, 1, {"F0 B1"});
  CHECK(complaint(unknown, unit_costs(unknown)) == "schedule 'test' cannot be run: there is no B1");
}

TEST_CASE("costs of another number of stages are rejected") {
  const Schedule schedule = make_schedule("gpipe", 4, 2, 1);
  CostModel costs = unit_costs(schedule);
  SUBCASE("chunks") { costs.chunks.pop_back(); }
  SUBCASE("links") { costs.links.resize(2); }
  SUBCASE("buckets") { costs.buckets.resize(3); }
  SUBCASE("chunk of a bucket") { costs.buckets = {{{.chunk = 1}}, {}, {}, {}}; }
  SUBCASE("optimizer") { costs.optimizer.resize(5); }
  CHECK(complaint(schedule, costs).find("cost model: ") == 0);
}

}  // namespace convoy
