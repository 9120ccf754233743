// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule.h"

#include <algorithm>

#include "layers/base/error.h"

namespace convoy {

Schedule one_stage_schedule(int microbatches) {
  if (microbatches < 1) {
    fail_usage("parallel.microbatches: {} is not a number of microbatches (it must be at least 1)", microbatches);
  }
  Schedule schedule{.name = "one_stage", .stages = 1, .microbatches = microbatches, .chunks = 1, .actions = {{}}};
  std::vector<Action>& actions = schedule.actions.front();
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    actions.push_back({ActionKind::kForward, microbatch});
    actions.push_back({ActionKind::kBackward, microbatch});
  }
  actions.push_back({ActionKind::kReduceGradients});
  actions.push_back({ActionKind::kOptimizerStep});
  return schedule;
}

int activations_in_flight(const Schedule& schedule, int stage) {
  int now = 0;
  int most = 0;
  for (const Action& action : schedule.actions.at(static_cast<std::size_t>(stage))) {
    if (action.kind == ActionKind::kForward) most = std::max(most, ++now);
    if (action.kind == ActionKind::kBackward) --now;
  }
  return most;
}

std::string action_name(const Action& action) {
  const std::string where =
      action.chunk == 0 ? fmt::format("{}", action.microbatch) : fmt::format("{}.{}", action.microbatch, action.chunk);
  switch (action.kind) {
    case ActionKind::kForward: return "F" + where;
    case ActionKind::kBackward: return "B" + where;
    case ActionKind::kReduceGradients: return "Reduce";
    case ActionKind::kOptimizerStep: return "Step";
  }
  return "?";
}

}  // namespace convoy
