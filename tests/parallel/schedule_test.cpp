// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule.h"

#include <doctest/doctest.h>

#include <string>

#include "layers/base/error.h"
#include "parallel/schedule_check.h"

namespace convoy {

TEST_CASE("the one-stage schedule, written out") {
  const Schedule schedule = one_stage_schedule(3);
  CHECK(schedule.stages == 1);
  CHECK(schedule.microbatches == 3);
  std::string text;
  for (const Action& action : schedule.actions.at(0)) text += action_name(action) + " ";
  CHECK(text == "F0 B0 F1 B1 F2 B2 Reduce Step ");
}

TEST_CASE("the one-stage schedule is whole and keeps one microbatch in flight, at any length") {
  for (int microbatches = 1; microbatches <= 40; ++microbatches) {
    const Schedule schedule = one_stage_schedule(microbatches);
    CHECK_NOTHROW(check_schedule(schedule));
    CHECK(schedule.actions.size() == 1);
    CHECK(schedule.actions[0].size() == static_cast<std::size_t>(2 * microbatches + 2));
    CHECK(activations_in_flight(schedule, 0) == 1);
  }
}

TEST_CASE("no microbatches are a usage error") {
  for (const int microbatches : {0, -1}) {
    try {
      (void)one_stage_schedule(microbatches);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kUsage);
      CHECK(std::string(error.what()).find("parallel.microbatches") != std::string::npos);
    }
  }
}

TEST_CASE("activations in flight are the most forwards before their backward") {
  Schedule schedule{.name = "F F B F B B", .stages = 1, .microbatches = 3, .chunks = 1, .actions = {{}}};
  schedule.actions[0] = {{ActionKind::kForward, 0},      {ActionKind::kForward, 1},   {ActionKind::kBackward, 0},
                         {ActionKind::kForward, 2},      {ActionKind::kBackward, 1},  {ActionKind::kBackward, 2},
                         {ActionKind::kReduceGradients}, {ActionKind::kOptimizerStep}};
  CHECK(activations_in_flight(schedule, 0) == 2);
  CHECK_NOTHROW(check_schedule(schedule));
}

TEST_CASE("actions have names") {
  CHECK(action_name({ActionKind::kForward, 12}) == "F12");
  CHECK(action_name({ActionKind::kBackward, 3, 1}) == "B3.1");
  CHECK(action_name({ActionKind::kReduceGradients}) == "Reduce");
  CHECK(action_name({ActionKind::kOptimizerStep}) == "Step");
}

}  // namespace convoy
