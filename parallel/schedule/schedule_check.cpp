// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule_check.h"

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "layers/base/error.h"
#include "parallel/schedule/schedule_communication.h"
#include "parallel/schedule/schedule_deadlock.h"

namespace convoy {

namespace {

// Follows one stage through its actions.
class StageCheck {
 public:
  StageCheck(const Schedule& schedule, int stage, bool forward_only)
      : schedule_(schedule),
        stage_(stage),
        forward_only_(forward_only),
        chunks_(static_cast<std::size_t>(schedule.chunks)),
        done_(chunks_.size() * static_cast<std::size_t>(schedule.microbatches)) {}

  void run() {
    const std::vector<Action>& actions = schedule_.actions[static_cast<std::size_t>(stage_)];
    for (position_ = 0; position_ < actions.size(); ++position_) take(actions[position_]);
    // What is missing is missed at the end of the list.
    for (int i = 0; i < schedule_.microbatches * schedule_.chunks; ++i) {
      check_all_done(i / schedule_.chunks, i % schedule_.chunks);
    }
    if (forward_only_) return;
    if (!reduced_) broken("the list ends without Reduce");
    if (!stepped_) broken("the list ends without Step");
  }

 private:
  using enum ActionKind;

  // By kind of action: whether it came, for one microbatch on one chunk.
  using Done = std::array<bool, static_cast<std::size_t>(kOptimizerStep)>;

  // The next microbatch of each kind, on one chunk.
  struct Chunk {
    int forward = 0, backward = 0, weight = 0;
  };

  template <class... Args>
  [[noreturn]] void broken(fmt::format_string<Args...> format, Args&&... args) const {
    fail("schedule '{}' is broken at stage {}, action {}: {}", schedule_.name, stage_, position_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  Done& done(int microbatch, int chunk) {
    return done_[static_cast<std::size_t>(microbatch) * chunks_.size() + static_cast<std::size_t>(chunk)];
  }

  static bool came(const Done& done, ActionKind kind) { return done[static_cast<std::size_t>(kind)]; }

  bool has_other_end(ActionKind kind, int microbatch, int chunk) const {
    return other_end(schedule_, stage_, {kind, microbatch, chunk}).has_value();
  }

  void check_all_done(int microbatch, int chunk) {
    const Done& here = done(microbatch, chunk);
    const auto missing = [&](ActionKind kind) {
      if (!came(here, kind)) broken("the list ends without {}", action_name({kind, microbatch, chunk}));
    };
    missing(kForward);
    if (has_other_end(kSendActivation, microbatch, chunk)) missing(kSendActivation);
    if (forward_only_) return;
    if (came(here, kBackwardInput)) {
      missing(kBackwardWeight);
    } else {
      missing(kBackward);
    }
    if (has_other_end(kSendGradient, microbatch, chunk)) missing(kSendGradient);
  }

  void take(const Action& action) {
    if (action.kind > kOptimizerStep) broken("an action of unknown kind {}", static_cast<int>(action.kind));
    if (stepped_) broken("{} comes after Step, which ends the list", action_name(action));
    const bool forward = action.kind == kForward || action.kind == kSendActivation || action.kind == kReceiveActivation;
    if (forward_only_ && !forward) broken("{} has no place in a schedule of forwards", action_name(action));
    if (action.kind == kReduceGradients) {
      if (reduced_) broken("Reduce comes twice");
      reduced_ = true;
      return;
    }
    if (action.kind == kOptimizerStep) {
      if (!reduced_) broken("Step comes before Reduce");
      stepped_ = true;
      return;
    }
    check_numbers(action);
    Done& here = done(action.microbatch, action.chunk);
    if (came(here, action.kind)) broken("{} comes twice", action_name(action));
    if (is_compute(action.kind)) {
      check_compute(action, here);
    } else {
      check_message(action, here);
    }
    here[static_cast<std::size_t>(action.kind)] = true;
  }

  void check_numbers(const Action& action) const {
    if (action.microbatch < 0 || action.microbatch >= schedule_.microbatches) {
      broken("{} is of none of the {} microbatches", action_name(action), schedule_.microbatches);
    }
    if (action.chunk < 0 || action.chunk >= schedule_.chunks) {
      broken("{} is of none of the {} chunks", action_name(action), schedule_.chunks);
    }
  }

  void check_compute(const Action& action, const Done& here) {
    const bool forward = action.kind == kForward;
    if (!forward && !came(here, kForward)) broken("{} comes before its forward", action_name(action));
    if (reduced_) broken("{} comes after Reduce: its gradients would not be summed", action_name(action));
    Chunk& chunk = chunks_[static_cast<std::size_t>(action.chunk)];
    if (action.kind == kBackwardWeight) {
      if (came(here, kBackward)) both_forms(action, kBackward);
      if (!came(here, kBackwardInput)) broken("{} comes before its input half", action_name(action));
      if (action.microbatch < chunk.weight) out_of_order(action, chunk.weight - 1);
      chunk.weight = action.microbatch + 1;
      return;
    }
    if (action.kind == kBackward && came(here, kBackwardInput)) both_forms(action, kBackwardInput);
    if (action.kind == kBackwardInput && came(here, kBackward)) both_forms(action, kBackward);
    check_received(forward ? kReceiveActivation : kReceiveGradient, action, here);
    int& next = forward ? chunk.forward : chunk.backward;
    if (action.microbatch < next) out_of_order(action, next - 1);
    next = action.microbatch + 1;
  }

  void check_received(ActionKind receive, const Action& action, const Done& here) const {
    if (came(here, receive) || !has_other_end(receive, action.microbatch, action.chunk)) return;
    broken("{} comes before {}, which it needs", action_name(action),
           action_name({receive, action.microbatch, action.chunk}));
  }

  [[noreturn]] void both_forms(const Action& action, ActionKind other) const {
    broken("{} comes after {}: a backward comes whole or in halves", action_name(action),
           action_name({other, action.microbatch, action.chunk}));
  }

  [[noreturn]] void out_of_order(const Action& action, int before) const {
    broken("{} comes after {}: microbatches come in their order", action_name(action),
           action_name({action.kind, before, action.chunk}));
  }

  void check_message(const Action& action, const Done& here) const {
    if (!has_other_end(action.kind, action.microbatch, action.chunk)) {
      broken("{} has no other end on another stage", action_name(action));
    }
    const bool forward_done = came(here, kForward);
    const bool backward_done = came(here, kBackward) || came(here, kBackwardInput);
    if ((action.kind == kSendActivation && !forward_done) || (action.kind == kSendGradient && !backward_done)) {
      broken("{} comes before what it sends", action_name(action));
    }
    if ((action.kind == kReceiveActivation && forward_done) || (action.kind == kReceiveGradient && backward_done)) {
      broken("{} comes after what needs it", action_name(action));
    }
  }

  const Schedule& schedule_;
  int stage_;
  bool forward_only_;
  std::size_t position_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<Done> done_;  // by microbatch, then chunk
  bool reduced_ = false;
  bool stepped_ = false;
};

void check(const Schedule& schedule, bool forward_only) {
  if (schedule.stages < 1 || schedule.microbatches < 1 || schedule.chunks < 1) {
    fail("schedule '{}' is broken: {} stages, {} microbatches and {} chunks must all be at least 1", schedule.name,
         schedule.stages, schedule.microbatches, schedule.chunks);
  }
  if (schedule.placement == Placement::kV && schedule.chunks != 2) {
    fail("schedule '{}' is broken: a V has 2 chunks, not {}", schedule.name, schedule.chunks);
  }
  if (schedule.actions.size() != static_cast<std::size_t>(schedule.stages)) {
    fail("schedule '{}' is broken: it has {} stages and lists of actions for {}", schedule.name, schedule.stages,
         schedule.actions.size());
  }
  for (int stage = 0; stage < schedule.stages; ++stage) StageCheck(schedule, stage, forward_only).run();
  check_message_order(schedule);
  check_deadlock(schedule);
}

}  // namespace

void check_schedule(const Schedule& schedule) { check(schedule, false); }

void check_forward_schedule(const Schedule& schedule) { check(schedule, true); }

}  // namespace convoy
