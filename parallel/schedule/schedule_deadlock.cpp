// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule_deadlock.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "layers/base/error.h"
#include "parallel/schedule/schedule_communication.h"
#include "parallel/schedule/simulator.h"

namespace convoy {

namespace {

std::size_t size(int value) { return static_cast<std::size_t>(value); }

struct PlacedAction {
  std::size_t position = 0;  // in its stage's list
  Action action;             // as the receiver's list calls it
};

bool is_send(ActionKind kind) { return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient; }

// The receive without which a compute action cannot start; there is one if other_end() finds its sender.
std::optional<Action> receive_for(const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward: return Action{ActionKind::kReceiveActivation, action.microbatch, action.chunk};
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput: return Action{ActionKind::kReceiveGradient, action.microbatch, action.chunk};
    default: return std::nullopt;
  }
}

// The ranks and their messages when nothing is buffered.
class Rendezvous {
 public:
  explicit Rendezvous(const Schedule& schedule)
      : schedule_(schedule),
        sends_(2 * size(schedule.virtual_stages()) * size(schedule.microbatches), false),
        receives_(sends_),
        begun_(size(schedule.stages), 0),
        position_(begun_) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < schedule_.stages; ++stage) moved = advance(stage) || moved;
    }
    std::string waits;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      if (position_[size(stage)] == list(stage).size()) continue;
      const Action& action = list(stage)[position_[size(stage)]];
      const std::optional<Action> message = is_send(action.kind) ? action : receive_for(action);
      const std::optional<OtherEnd> other = message ? other_end(schedule_, stage, *message) : std::nullopt;
      if (!other) continue;
      waits += fmt::format("{}stage {}, action {}: {} waits for {} of stage {}", waits.empty() ? "" : "; ", stage,
                           position_[size(stage)], action_name(action), action_name(other->action), other->stage);
    }
    if (!waits.empty()) fail("schedule '{}' deadlocks: {}", schedule_.name, waits);
  }

 private:
  const std::vector<Action>& list(int stage) const { return schedule_.actions[size(stage)]; }

  // One slot per message, by what its receiver calls it.
  std::size_t slot(int stage, const Action& receive) const {
    const std::size_t v = size(schedule_.virtual_stage(stage, receive.chunk));
    const std::size_t kind = receive.kind == ActionKind::kReceiveActivation ? 0 : 1;
    return (kind * size(schedule_.virtual_stages()) + v) * size(schedule_.microbatches) + size(receive.microbatch);
  }

  std::size_t slot_of_send(int stage, const Action& send) const {
    const std::optional<OtherEnd> receiver = other_end(schedule_, stage, send);
    return slot(receiver->stage, receiver->action);  // each send has one: the lists are right one by one
  }

  bool advance(int stage) {
    std::size_t& i = position_[size(stage)];
    const std::size_t before = i;
    bool moved = begin_group(stage);
    for (; i < list(stage).size() && may_leave(stage, list(stage)[i]); ++i) {
      if (i + 1 < list(stage).size() && !is_communication(list(stage)[i].kind))
        moved = begin_group(stage, i + 1) || moved;
    }
    return moved || i != before;
  }

  bool begin_group(int stage) { return begin_group(stage, position_[size(stage)]); }

  // Starts the sends and receives from position i on, up to the next action of another kind; true if there are new
  // ones.
  bool begin_group(int stage, std::size_t i) {
    std::size_t& begun = begun_[size(stage)];
    if (i < begun) return false;
    begun = i;
    for (; begun < list(stage).size() && is_communication(list(stage)[begun].kind); ++begun) {
      const Action& action = list(stage)[begun];
      if (is_send(action.kind)) {
        sends_[slot_of_send(stage, action)] = true;
      } else {
        receives_[slot(stage, action)] = true;
      }
    }
    return begun != i;
  }

  bool may_leave(int stage, const Action& action) const {
    if (is_send(action.kind)) return receives_[slot_of_send(stage, action)];
    const std::optional<Action> receive = receive_for(action);
    if (!receive || !other_end(schedule_, stage, *receive)) return true;
    return sends_[slot(stage, *receive)];
  }

  const Schedule& schedule_;
  std::vector<bool> sends_, receives_;  // by message: begun
  std::vector<std::size_t> begun_;      // by stage: all messages before this position have begun
  std::vector<std::size_t> position_;   // by stage: all actions before this position are done
};

}  // namespace

void check_message_order(const Schedule& schedule) {
  // By sending stage, then receiving stage.
  std::vector<std::vector<PlacedAction>> sent(size(schedule.stages) * size(schedule.stages));
  std::vector<std::vector<PlacedAction>> received(sent.size());
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const std::vector<Action>& list = schedule.actions[size(stage)];
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!is_communication(list[i].kind)) continue;
      const std::optional<OtherEnd> other = other_end(schedule, stage, list[i]);
      if (is_send(list[i].kind)) {
        sent[size(stage) * size(schedule.stages) + size(other->stage)].push_back({i, other->action});
      } else {
        received[size(other->stage) * size(schedule.stages) + size(stage)].push_back({i, list[i]});
      }
    }
  }
  for (std::size_t pair = 0; pair < sent.size(); ++pair) {
    // As many of both: each list by itself has all of its messages once.
    for (std::size_t i = 0; i < sent[pair].size(); ++i) {
      const PlacedAction& send = sent[pair][i];
      const PlacedAction& receive = received[pair][i];
      if (send.action == receive.action) continue;
      fail("schedule '{}' is broken at stage {}, action {}: {} comes where stage {}, action {}, sends for {}",
           schedule.name, pair % size(schedule.stages), receive.position, action_name(receive.action),
           pair / size(schedule.stages), send.position, action_name(send.action));
    }
  }
}

void check_deadlock(const Schedule& schedule) {
  (void)simulate(schedule, unit_costs(schedule));  // what computes waits for what computes
  Rendezvous(schedule).run();
}

}  // namespace convoy
