// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule_communication.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

#include "layers/base/error.h"
#include "parallel/schedule/simulator.h"

namespace convoy {

namespace {

// A send or receive, and the place of it: before which action of its stage, and where among others at that place.
struct Insertion {
  std::size_t before = 0;
  bool receive = false;  // sends first: what they send is there
  double time = 0;
  int from_stage = 0;
  Action action;
};

bool earlier(const Insertion& a, const Insertion& b) {
  return std::tie(a.before, a.receive, a.time, a.from_stage) < std::tie(b.before, b.receive, b.time, b.from_stage);
}

// What a compute action has to send, were its neighbour on another rank.
std::optional<Action> send_of(const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward: return Action{ActionKind::kSendActivation, action.microbatch, action.chunk};
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput: return Action{ActionKind::kSendGradient, action.microbatch, action.chunk};
    default: return std::nullopt;
  }
}

std::vector<Action> merged(const std::vector<Action>& list, std::vector<Insertion>& insertions) {
  std::sort(insertions.begin(), insertions.end(), earlier);
  std::vector<Action> all;
  all.reserve(list.size() + insertions.size());
  auto next = insertions.cbegin();
  for (std::size_t i = 0; i <= list.size(); ++i) {
    for (; next != insertions.cend() && next->before == i; ++next) all.push_back(next->action);
    if (i < list.size()) all.push_back(list[i]);
  }
  return all;
}

}  // namespace

std::optional<OtherEnd> other_end(const Schedule& schedule, int stage, const Action& communication) {
  int neighbour = schedule.virtual_stage(stage, communication.chunk);
  ActionKind kind{};
  switch (communication.kind) {
    case ActionKind::kSendActivation: kind = ActionKind::kReceiveActivation, ++neighbour; break;
    case ActionKind::kReceiveActivation: kind = ActionKind::kSendActivation, --neighbour; break;
    case ActionKind::kSendGradient: kind = ActionKind::kReceiveGradient, --neighbour; break;
    case ActionKind::kReceiveGradient: kind = ActionKind::kSendGradient, ++neighbour; break;
    default: fail("{} has no other end: it is neither a send nor a receive", action_name(communication));
  }
  if (neighbour < 0 || neighbour >= schedule.virtual_stages()) return std::nullopt;
  const int other = schedule.stage_of(neighbour);
  if (other == stage) return std::nullopt;
  return OtherEnd{other, {kind, communication.microbatch, schedule.chunk_of(neighbour)}};
}

void insert_communication(Schedule& schedule) {
  const Timeline timeline = simulate(schedule, unit_costs(schedule));
  std::vector<std::vector<Insertion>> insertions(schedule.actions.size());
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const std::vector<TimedAction>& timed = timeline.stages[static_cast<std::size_t>(stage)];
    for (std::size_t i = 0; i < timed.size(); ++i) {
      const std::optional<Action> send = send_of(timed[i].action);
      const std::optional<OtherEnd> receiver = send ? other_end(schedule, stage, *send) : std::nullopt;
      if (!receiver) continue;
      const double time = timed[i].end;
      insertions[static_cast<std::size_t>(stage)].push_back({i + 1, false, time, stage, *send});
      const std::vector<TimedAction>& there = timeline.stages[static_cast<std::size_t>(receiver->stage)];
      const auto starts_later = std::partition_point(there.begin(), there.end(),
                                                     [&](const TimedAction& other) { return other.start < time; });
      const auto before = static_cast<std::size_t>(starts_later - there.begin());
      insertions[static_cast<std::size_t>(receiver->stage)].push_back({before, true, time, stage, receiver->action});
    }
  }
  for (std::size_t stage = 0; stage < schedule.actions.size(); ++stage) {
    schedule.actions[stage] = merged(schedule.actions[stage], insertions[stage]);
  }
}

}  // namespace convoy
