// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule_check.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "layers/base/error.h"
#include "tests/parallel/schedule/schedule_text.h"

namespace convoy {

namespace {

std::string complaint(const Schedule& schedule, void (*check)(const Schedule&) = check_schedule) {
  try {
    check(schedule);
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

// One stage with two microbatches and two chunks.
const std::string kOneStage = "F0 F0.1 F1 F1.1 B0.1 B1.1 B0 B1 Reduce Step";

std::string of_one_stage(const std::string& list) { return complaint(schedule_of(2, 2, {list})); }

// Two stages with two microbatches and halved backwards, whole; tests break the second.
const std::string kFirst = "F0 SA0 F1 SA1 RG0 I0 W0 RG1 I1 W1 Reduce Step";
const std::string kSecond = "RA0 F0 RA1 I0 SG0 F1 I1 SG1 W0 W1 Reduce Step";

std::string of_two_stages(const std::string& second) { return complaint(schedule_of(2, 1, {kFirst, second})); }

}  // namespace

TEST_CASE("whole schedules pass") {
  CHECK(of_one_stage(kOneStage) == "no complaint");
  CHECK(of_two_stages(kSecond) == "no complaint");
}

TEST_CASE("a list that is broken by itself is rejected, with its place") {
  const std::string at = "schedule 'test' is broken at stage 0, action ";
  const auto expect = [&](const std::string& list, const std::string& text) { CHECK(of_one_stage(list) == at + text); };
  expect("F0 F0.1 F1.1 B0.1 B1.1 B0 B1 Reduce Step", "6: B1 comes before its forward");
  expect("F0 F0.1 F1.1 B0.1 B1.1 B0 Reduce Step", "8: the list ends without F1");
  expect("F0 F0 F0.1 F1 F1.1 B0.1 B1.1 B0 B1 Reduce Step", "1: F0 comes twice");
  expect("F0 F0.1 F1 F1.1 B0.1 B0 B1 Reduce Step", "9: the list ends without B1.1");
  expect("F0 F0.1 F1 B0.1 B1.1 F1.1 B0 B1 Reduce Step", "4: B1.1 comes before its forward");
  expect("F0 F0.1 F1 F1.1 B0.1 B0.1 B1.1 B0 B1 Reduce Step", "5: B0.1 comes twice");
  expect("F1 F1.1 F0 F0.1 B0.1 B1.1 B0 B1 Reduce Step", "2: F0 comes after F1: microbatches come in their order");
  expect("F0 F0.1 F1 F1.1 B1.1 B0.1 B0 B1 Reduce Step", "5: B0.1 comes after B1.1: microbatches come in their order");
  expect("F0 F0.1 F1 F1.1 B0.1 B1.1 B0 B1 Step", "8: Step comes before Reduce");
  expect("F0 F0.1 F1 F1.1 B0.1 B1.1 B0 B1", "8: the list ends without Reduce");
  expect("F0 F0.1 F1 F1.1 B0.1 B1.1 B0 B1 Reduce Reduce Step", "9: Reduce comes twice");
  expect("F0 F0.1 F1 F1.1 B0.1 B1.1 B0 Reduce B1 Step", "8: B1 comes after Reduce: its gradients would not be summed");
  expect("F0 F0.1 F1 F1.1 B0.1 B1.1 B0 B1 Reduce", "9: the list ends without Step");
  expect(kOneStage + " Step", "10: Step comes after Step, which ends the list");
  expect(kOneStage + " F0", "10: F0 comes after Step, which ends the list");
  expect("F2", "0: F2 is of none of the 2 microbatches");
  expect("F-1", "0: F-1 is of none of the 2 microbatches");
  expect("F0.2", "0: F0.2 is of none of the 2 chunks");
  expect("F0 SA0", "1: SA0 has no other end on another stage");
  Schedule unknown = schedule_of(2, 2, {kOneStage});
  unknown.actions[0][0].kind = static_cast<ActionKind>(99);
  CHECK(complaint(unknown) == at + "0: an action of unknown kind 99");
}

TEST_CASE("halves of backwards in the wrong place are rejected") {
  const std::string at = "schedule 'test' is broken at stage 1, action ";
  const auto expect = [&](const std::string& list, const std::string& text) {
    CHECK(of_two_stages(list) == at + text);
  };
  expect("RA0 F0 RA1 W0 I0 SG0 F1 I1 SG1 W1 Reduce Step", "3: W0 comes before its input half");
  expect("RA0 F0 RA1 I0 SG0 F1 I1 SG1 W1 W0 Reduce Step", "9: W0 comes after W1: microbatches come in their order");
  expect("RA0 F0 RA1 I0 SG0 F1 I1 SG1 W0 Reduce W1 Step",
         "10: W1 comes after Reduce: its gradients would not be summed");
  expect("RA0 F0 RA1 I0 SG0 F1 I1 SG1 W0 Reduce Step", "11: the list ends without W1");
  expect("RA0 F0 RA1 I0 SG0 B0 F1 I1 SG1 W0 W1 Reduce Step",
         "5: B0 comes after I0: a backward comes whole or in halves");
  expect("RA0 F0 RA1 B0 SG0 I0 F1 I1 SG1 W0 W1 Reduce Step",
         "5: I0 comes after B0: a backward comes whole or in halves");
  expect("RA0 F0 RA1 B0 SG0 W0 F1 I1 SG1 W1 Reduce Step", "5: W0 comes after B0: a backward comes whole or in halves");
  CHECK(of_two_stages("RA0 F0 RA1 B0 SG0 F1 I1 SG1 W1 Reduce Step") == "no complaint");
}

TEST_CASE("sends and receives in the wrong place are rejected") {
  const std::string at = "schedule 'test' is broken at stage 1, action ";
  const auto expect = [&](const std::string& list, const std::string& text) {
    CHECK(of_two_stages(list) == at + text);
  };
  expect("RA0 F0 I0 SG0 F1 I1 SG1 W0 W1 Reduce Step", "4: F1 comes before RA1, which it needs");
  expect("RA0 F0 I0 SG0 F1 RA1 I1 SG1 W0 W1 Reduce Step", "4: F1 comes before RA1, which it needs");
  expect("RA0 F0 RA1 I0 SG0 F1 RA1 I1 SG1 W0 W1 Reduce Step", "6: RA1 comes twice");
  expect("RA0 F0 RA1 SG0 I0 F1 I1 SG1 W0 W1 Reduce Step", "3: SG0 comes before what it sends");
  expect("RA0 F0 RA1 I0 F1 I1 SG1 W0 W1 Reduce Step", "11: the list ends without SG0");
  expect("RA0 F0 SA0 RA1 I0 SG0 F1 I1 SG1 W0 W1 Reduce Step", "2: SA0 has no other end on another stage");
  expect("RA0 F0 RA1 I0 SG0 F1 I1 SG1 RG1 W0 W1 Reduce Step", "8: RG1 has no other end on another stage");
  expect("RA1 RA0 F0 I0 SG0 F1 I1 SG1 W0 W1 Reduce Step", "0: RA1 comes where stage 0, action 1, sends for RA0");
  Schedule late = schedule_of(2, 1, {"F0 SA0 F1 SA1 RG0 B0 RG1 B1 Reduce Step", kSecond});
  late.actions[1].insert(late.actions[1].end() - 2, {ActionKind::kReceiveActivation, 0});
  CHECK(complaint(late) == at + "10: RA0 comes twice");
}

TEST_CASE("lists that wait for each other are rejected") {
  // The second stage's F1 waits for the first stage's, that one for B0, which waits for the second stage.
  CHECK(complaint(schedule_of(
            2, 1, {"F0 SA0 RG0 B0 F1 SA1 RG1 B1 Reduce Step", "RA0 F0 RA1 F1 B0 SG0 B1 SG1 Reduce Step"})) ==
        "schedule 'test' cannot be run: stage 0, action 3: B0 waits for B0 of stage 1; stage 1, action 3: F1 waits for "
        "F1 of stage 0");
  // Chunk 1 of the only stage before chunk 0: no message, but an order that cannot be.
  CHECK(of_one_stage("F0.1 F0 F1 F1.1 B0.1 B1.1 B0 B1 Reduce Step") ==
        "schedule 'test' cannot be run: stage 0, action 0: F0.1 waits for F0 of stage 0");
}

TEST_CASE("sends that wait for each other are rejected") {
  // Each rank computes between its send and the receive that the other's send waits for. With one unit of time each and
  // buffers it would run.
  CHECK(complaint(schedule_of(3, 1,
                              {"F0 SA0 F1 SA1 F2 SA2 RG0 B0 RG1 B1 RG2 B2 Reduce Step",
                               "RA0 F0 I0 SG0 W0 RA1 F1 RA2 B1 SG1 F2 B2 SG2 Reduce Step"})) ==
        "schedule 'test' deadlocks: stage 0, action 3: SA1 waits for RA1 of stage 1; stage 1, action 3: SG0 waits for "
        "RG0 "
        "of stage 0");
  // A receive beside the send that waits resolves it: both start together.
  CHECK(complaint(schedule_of(3, 1,
                              {"F0 SA0 F1 SA1 F2 SA2 RG0 B0 RG1 B1 RG2 B2 Reduce Step",
                               "RA0 F0 I0 SG0 RA1 RA2 W0 F1 B1 SG1 F2 B2 SG2 Reduce Step"})) == "no complaint");
}

TEST_CASE("whatever is dropped from a schedule, or doubled, is missed") {
  for (const auto& [name, chunks] :
       {std::pair{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zero_bubble", 1}, {"zb_v", 2}}) {
    const Schedule whole = make_schedule(name, 3, 6, chunks);
    int passed = 0;
    int passed_forward = 0;
    for (std::size_t stage = 0; stage < 3; ++stage) {
      for (std::size_t i = 0; i < whole.actions[stage].size(); ++i) {
        Schedule broken = whole;
        std::vector<Action>& list = broken.actions[stage];
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        passed += complaint(broken) == "no complaint" ? 1 : 0;
        list = whole.actions[stage];
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), list[i]);
        passed += complaint(broken) == "no complaint" ? 1 : 0;
      }
    }
    const Schedule forwards = forward_only(whole);
    for (std::size_t stage = 0; stage < 3; ++stage) {
      for (std::size_t i = 0; i < forwards.actions[stage].size(); ++i) {
        Schedule broken = forwards;
        broken.actions[stage].erase(broken.actions[stage].begin() + static_cast<std::ptrdiff_t>(i));
        passed_forward += complaint(broken, check_forward_schedule) == "no complaint" ? 1 : 0;
      }
    }
    CHECK(passed == 0);
    CHECK(passed_forward == 0);
  }
}

TEST_CASE("schedules of forwards") {
  const Schedule forwards = schedule_of(2, 1, {"F0 SA0 F1 SA1", "RA0 F0 RA1 F1"});
  CHECK(complaint(forwards, check_forward_schedule) == "no complaint");
  CHECK(complaint(forwards) == "schedule 'test' is broken at stage 0, action 4: the list ends without B0");
  for (const std::string name : {"B0", "RG0", "Reduce", "Step"}) {
    CHECK(complaint(schedule_of(2, 1, {"F0 SA0 F1 SA1 " + name, "RA0 F0 RA1 F1"}), check_forward_schedule) ==
          "schedule 'test' is broken at stage 0, action 4: " + name + " has no place in a schedule of forwards");
  }
}

TEST_CASE("sizes that do not fit are rejected") {
  Schedule schedule = schedule_of(2, 1, {kFirst, kSecond});
  SUBCASE("a list too few") { schedule.actions.pop_back(); }
  SUBCASE("a list too many") { schedule.actions.push_back(schedule.actions[0]); }
  SUBCASE("no stages") { schedule.stages = 0; }
  SUBCASE("no microbatches") { schedule.microbatches = 0; }
  SUBCASE("no chunks") { schedule.chunks = 0; }
  SUBCASE("a V of one chunk") { schedule.placement = Placement::kV; }
  CHECK(complaint(schedule).find("schedule 'test' is broken") == 0);
}

}  // namespace convoy
