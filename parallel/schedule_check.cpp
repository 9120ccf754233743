// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule_check.h"

#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

// Follows one stage through its actions.
class StageCheck {
 public:
  StageCheck(const Schedule& schedule, std::size_t stage)
      : schedule_(schedule),
        stage_(stage),
        forwards_(static_cast<std::size_t>(schedule.microbatches) * static_cast<std::size_t>(schedule.chunks), false),
        backwards_(forwards_) {}

  void run() {
    const std::vector<Action>& actions = schedule_.actions[stage_];
    for (position_ = 0; position_ < actions.size(); ++position_) take(actions[position_]);
    // What is missing is missed at the end of the list.
    for (int i = 0; i < schedule_.microbatches * schedule_.chunks; ++i) {
      const Action forward{ActionKind::kForward, i / schedule_.chunks, i % schedule_.chunks};
      const Action backward{ActionKind::kBackward, forward.microbatch, forward.chunk};
      if (!forwards_[static_cast<std::size_t>(i)]) broken("the list ends without {}", action_name(forward));
      if (!backwards_[static_cast<std::size_t>(i)]) broken("the list ends without {}", action_name(backward));
    }
    if (!reduced_) broken("the list ends without Reduce");
    if (!stepped_) broken("the list ends without Step");
  }

 private:
  template <class... Args>
  [[noreturn]] void broken(fmt::format_string<Args...> format, Args&&... args) const {
    fail("schedule '{}' is broken at stage {}, action {}: {}", schedule_.name, stage_, position_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  std::size_t slot(const Action& action) const {
    if (action.microbatch < 0 || action.microbatch >= schedule_.microbatches) {
      broken("{} is of none of the {} microbatches", action_name(action), schedule_.microbatches);
    }
    if (action.chunk < 0 || action.chunk >= schedule_.chunks) {
      broken("{} is of none of the {} chunks", action_name(action), schedule_.chunks);
    }
    const auto row = static_cast<std::size_t>(action.microbatch);
    return row * static_cast<std::size_t>(schedule_.chunks) + static_cast<std::size_t>(action.chunk);
  }

  void take(const Action& action) {
    if (stepped_) broken("{} comes after Step, which ends the list", action_name(action));
    switch (action.kind) {
      case ActionKind::kForward: {
        const std::size_t i = slot(action);
        if (forwards_[i]) broken("{} comes twice", action_name(action));
        forwards_[i] = true;
        return;
      }
      case ActionKind::kBackward: {
        const std::size_t i = slot(action);
        if (!forwards_[i]) broken("{} comes before its forward", action_name(action));
        if (backwards_[i]) broken("{} comes twice", action_name(action));
        if (reduced_) broken("{} comes after Reduce: its gradients would not be summed", action_name(action));
        backwards_[i] = true;
        return;
      }
      case ActionKind::kReduceGradients:
        if (reduced_) broken("Reduce comes twice");
        reduced_ = true;
        return;
      case ActionKind::kOptimizerStep:
        if (!reduced_) broken("Step comes before Reduce");
        stepped_ = true;
        return;
    }
    broken("an action of unknown kind {}", static_cast<int>(action.kind));
  }

  const Schedule& schedule_;
  std::size_t stage_;
  std::size_t position_ = 0;
  std::vector<bool> forwards_, backwards_;  // by microbatch, then chunk
  bool reduced_ = false;
  bool stepped_ = false;
};

}  // namespace

void check_schedule(const Schedule& schedule) {
  if (schedule.stages < 1 || schedule.microbatches < 1 || schedule.chunks < 1) {
    fail("schedule '{}' is broken: {} stages, {} microbatches and {} chunks must all be at least 1", schedule.name,
         schedule.stages, schedule.microbatches, schedule.chunks);
  }
  if (schedule.actions.size() != static_cast<std::size_t>(schedule.stages)) {
    fail("schedule '{}' is broken: it has {} stages and lists of actions for {}", schedule.name, schedule.stages,
         schedule.actions.size());
  }
  for (std::size_t stage = 0; stage < schedule.actions.size(); ++stage) StageCheck(schedule, stage).run();
}

}  // namespace convoy
