// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule_check.h"

#include <doctest/doctest.h>

#include <string>

#include "layers/base/error.h"

namespace convoy {

namespace {

std::string complaint(const Schedule& schedule) {
  try {
    check_schedule(schedule);
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

// A schedule of two stages with two microbatches and two chunks, whole; tests break one thing of it.
Schedule two_stages() {
  Schedule schedule{.name = "test", .stages = 2, .microbatches = 2, .chunks = 2, .actions = {}};
  std::vector<Action> actions;
  for (int i = 0; i < 4; ++i) actions.push_back({ActionKind::kForward, i / 2, i % 2});
  for (int i = 3; i >= 0; --i) actions.push_back({ActionKind::kBackward, i / 2, i % 2});
  actions.push_back({ActionKind::kReduceGradients});
  actions.push_back({ActionKind::kOptimizerStep});
  schedule.actions = {actions, actions};
  return schedule;
}

}  // namespace

TEST_CASE("a whole schedule of several stages and chunks passes") {
  CHECK(complaint(two_stages()) == "no complaint");
  CHECK(activations_in_flight(two_stages(), 1) == 4);
}

TEST_CASE("each broken schedule is rejected, with its place") {
  Schedule schedule = two_stages();
  std::vector<Action>& actions = schedule.actions[1];
  const auto expect = [&](const std::string& text) { CHECK(complaint(schedule) == text); };
  const std::string at = "schedule 'test' is broken at stage 1, action ";

  SUBCASE("a forward is missing, so its backward comes first") {
    actions.erase(actions.begin() + 2);
    expect(at + "4: B1 comes before its forward");
  }
  SUBCASE("a forward and its backward are missing") {
    actions.erase(actions.begin() + 5);
    actions.erase(actions.begin() + 2);
    expect(at + "8: the list ends without F1");
  }
  SUBCASE("a forward comes twice") {
    actions.insert(actions.begin() + 1, actions[0]);
    expect(at + "1: F0 comes twice");
  }
  SUBCASE("a backward is missing") {
    actions.erase(actions.begin() + 4);
    expect(at + "9: the list ends without B1.1");
  }
  SUBCASE("a backward comes before its forward") {
    std::swap(actions[3], actions[4]);
    expect(at + "3: B1.1 comes before its forward");
  }
  SUBCASE("a backward comes twice") {
    actions.insert(actions.begin() + 5, actions[4]);
    expect(at + "5: B1.1 comes twice");
  }
  SUBCASE("the reduction is missing, before the step") {
    actions.erase(actions.begin() + 8);
    expect(at + "8: Step comes before Reduce");
  }
  SUBCASE("both are missing") {
    actions.resize(8);
    expect(at + "8: the list ends without Reduce");
  }
  SUBCASE("the reduction comes twice") {
    actions.insert(actions.begin() + 8, actions[8]);
    expect(at + "9: Reduce comes twice");
  }
  SUBCASE("a backward comes after the reduction") {
    std::swap(actions[7], actions[8]);
    expect(at + "8: B0 comes after Reduce: its gradients would not be summed");
  }
  SUBCASE("the step is missing") {
    actions.pop_back();
    expect(at + "9: the list ends without Step");
  }
  SUBCASE("the step comes twice") {
    actions.push_back(actions.back());
    expect(at + "10: Step comes after Step, which ends the list");
  }
  SUBCASE("something follows the step") {
    actions.push_back({ActionKind::kForward, 0});
    expect(at + "10: F0 comes after Step, which ends the list");
  }
  SUBCASE("a microbatch is none") {
    actions[0].microbatch = 2;
    expect(at + "0: F2 is of none of the 2 microbatches");
    actions[0].microbatch = kWholeStep;
    expect(at + "0: F-1 is of none of the 2 microbatches");
  }
  SUBCASE("a chunk is none") {
    actions[6].chunk = 2;
    expect(at + "6: B0.2 is of none of the 2 chunks");
  }
  SUBCASE("a kind is unknown") {
    actions[0].kind = static_cast<ActionKind>(99);
    expect(at + "0: an action of unknown kind 99");
  }
}

TEST_CASE("sizes that do not fit are rejected") {
  Schedule schedule = two_stages();
  SUBCASE("a list too few") { schedule.actions.pop_back(); }
  SUBCASE("a list too many") { schedule.actions.push_back(schedule.actions[0]); }
  SUBCASE("no stages") { schedule = {.name = "test", .stages = 0, .microbatches = 1, .chunks = 1, .actions = {}}; }
  SUBCASE("no microbatches") { schedule.microbatches = 0; }
  SUBCASE("no chunks") { schedule.chunks = 0; }
  CHECK(complaint(schedule).find("schedule 'test' is broken") == 0);
}

}  // namespace convoy
