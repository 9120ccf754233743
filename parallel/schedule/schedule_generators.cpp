// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule_generators.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace convoy {

namespace {

ComputeLists empty_lists(int stages) { return ComputeLists(static_cast<std::size_t>(stages)); }

// Forwards 0 to `total` - 1 in turn with the backwards that follow each after `ahead` others: forward(i), backward(i).
template <class Forward, class Backward>
void in_turn(int total, int ahead, const Forward& forward, const Backward& backward) {
  for (int i = 0; i < total + ahead; ++i) {
    if (i < total) forward(i);
    if (i >= ahead) backward(i - ahead);
  }
}

// The order of one stage of zb_v, for at least 2P - 1 microbatches: each call of add() takes the next microbatch of
// that kind and chunk.
class VOrder {
 public:
  VOrder(int stages, int stage, int microbatches) : stages_(stages), stage_(stage), microbatches_(microbatches) {}

  std::vector<Action> run() {
    warm_up();
    // Both chunks in turn, as long as there are forwards.
    while (count(kForward, 1) < count(kForward, 0) || count(kForward, 0) < microbatches_) {
      if (count(kForward, 0) < microbatches_) add(kForward, 0);
      add(kInput, 0);
      add(kWeight, 0);
      add(kForward, 1);
      add(kInput, 1);
      add(kWeight, 1);
    }
    cool_down();
    return std::move(actions_);
  }

 private:
  using enum ActionKind;
  static constexpr ActionKind kInput = kBackwardInput;
  static constexpr ActionKind kWeight = kBackwardWeight;

  // The first microbatch needs 2 (P - stage) - 1 steps from here down the ranks and up again.
  void warm_up() {
    for (int i = 0; i < 2 * (stages_ - stage_) - 1; ++i) add(kForward, 0);
    for (int i = 0; i < stage_; ++i) {
      add(kForward, 1);
      add(kForward, 0);
    }
    for (int i = 0; i < stages_ - stage_; ++i) {
      add(kForward, 1);
      add(kInput, 1);
      add(kWeight, 1);
    }
  }

  // Halves that others wait for first; the delayed ones fill the time until the first rank is done.
  void cool_down() {
    for (int i = 0; i < stage_; ++i) {
      add(kInput, 0);
      add(kInput, 1);
    }
    for (int i = 0; i < stages_ - stage_; ++i) {
      add(kInput, 0);
      add(kWeight, 0);
    }
    for (const int chunk : {1, 0}) {
      while (count(kWeight, chunk) < count(kInput, chunk)) add(kWeight, chunk);
    }
  }

  void add(ActionKind kind, int chunk) { actions_.push_back({kind, count(kind, chunk)++, chunk}); }

  int& count(ActionKind kind, int chunk) {
    return counts_.at(static_cast<std::size_t>(kind)).at(static_cast<std::size_t>(chunk));
  }

  int stages_, stage_, microbatches_;
  std::array<std::array<int, 2>, 4> counts_{};  // by kind, then chunk
  std::vector<Action> actions_;
};

}  // namespace

ComputeLists one_after_another(int stages, int microbatches) {
  ComputeLists lists = empty_lists(stages);
  for (std::vector<Action>& list : lists) {
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      list.push_back({ActionKind::kForward, microbatch});
      list.push_back({ActionKind::kBackward, microbatch});
    }
  }
  return lists;
}

ComputeLists gpipe_order(int stages, int microbatches) {
  ComputeLists lists = empty_lists(stages);
  for (std::vector<Action>& list : lists) {
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      for (int microbatch = 0; microbatch < microbatches; ++microbatch) list.push_back({kind, microbatch});
    }
  }
  return lists;
}

ComputeLists one_forward_one_backward(int stages, int microbatches) {
  ComputeLists lists = empty_lists(stages);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Action>& list = lists[static_cast<std::size_t>(stage)];
    const int ahead = std::min(stages - stage - 1, microbatches);
    in_turn(
        microbatches, ahead,
        [&](int i) {
          list.push_back({ActionKind::kForward, i});
        },
        [&](int i) {
          list.push_back({ActionKind::kBackward, i});
        });
  }
  return lists;
}

ComputeLists interleaved_order(int stages, int microbatches, int chunks) {
  ComputeLists lists = empty_lists(stages);
  const int round = stages * chunks;
  const int total = microbatches * chunks;
  // Megatron-LM's numbering: P microbatches through chunk 0, the same through chunk 1, ..., then the next P.
  const auto microbatch_of = [&](int i) { return i / round * stages + i % stages; };
  const auto chunk_of = [&](int i) { return i % round / stages; };
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Action>& list = lists[static_cast<std::size_t>(stage)];
    const int ahead = std::min((stages - stage - 1) * 2 + (chunks - 1) * stages, total);
    in_turn(
        total, ahead,
        [&](int i) {
          list.push_back({ActionKind::kForward, microbatch_of(i), chunk_of(i)});
        },
        [&](int i) {
          list.push_back({ActionKind::kBackward, microbatch_of(i), chunks - 1 - chunk_of(i)});
        });
  }
  return lists;
}

// 1f1b's forwards and input halves. A weight half comes `stage` microbatches after its input half, so that each stage
// holds as many activations as stage 0, and the ones left over fill the time until stage 0 is done.
ComputeLists zero_bubble_order(int stages, int microbatches) {
  ComputeLists lists = empty_lists(stages);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Action>& list = lists[static_cast<std::size_t>(stage)];
    const int ahead = std::min(stages - stage - 1, microbatches);
    in_turn(
        microbatches, ahead,
        [&](int i) {
          list.push_back({ActionKind::kForward, i});
        },
        [&](int i) {
          list.push_back({ActionKind::kBackwardInput, i});
          if (i >= stage) list.push_back({ActionKind::kBackwardWeight, i - stage});
        });
    for (int i = std::max(microbatches - stage, 0); i < microbatches; ++i) {
      list.push_back({ActionKind::kBackwardWeight, i});
    }
  }
  return lists;
}

// The pattern of the paper needs 2P - 1 microbatches; of fewer, it is the same with the others left out.
ComputeLists zb_v_order(int stages, int microbatches) {
  ComputeLists lists = empty_lists(stages);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Action>& list = lists[static_cast<std::size_t>(stage)];
    list = VOrder(stages, stage, std::max(microbatches, 2 * stages - 1)).run();
    std::erase_if(list, [&](const Action& action) { return action.microbatch >= microbatches; });
  }
  return lists;
}

}  // namespace convoy
