// SPDX-License-Identifier: Apache-2.0
//
// Schedules as text, for tests: lists of actions by their names, "F0 SA0 RG0 B0 Reduce Step". Invariant: list_of()
// reads what text_of() writes.
#pragma once

#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace convoy {

inline std::string text_of(const std::vector<Action>& list) {
  std::string text;
  for (const Action& action : list) text += (text.empty() ? "" : " ") + action_name(action);
  return text;
}

inline Action action_of(const std::string& name) {
  using enum ActionKind;
  for (const ActionKind kind : {kReduceGradients, kOptimizerStep}) {
    if (name == action_name({kind})) return {kind};
  }
  for (const ActionKind kind : {kSendActivation, kReceiveActivation, kSendGradient, kReceiveGradient, kForward,
                                kBackward, kBackwardInput, kBackwardWeight}) {
    const std::string letters = action_name({kind, 0}).substr(0, action_name({kind, 0}).size() - 1);
    if (name.rfind(letters, 0) != 0) continue;
    const std::size_t dot = name.find('.');
    return {kind, std::atoi(name.c_str() + letters.size()), dot == std::string::npos ? 0 : std::atoi(&name[dot + 1])};
  }
  throw std::runtime_error("no action is called " + name);
}

inline std::vector<Action> list_of(const std::string& text) {
  std::vector<Action> list;
  std::istringstream words(text);
  for (std::string name; words >> name;) list.push_back(action_of(name));
  return list;
}

/// In the loop placement.
inline Schedule schedule_of(int microbatches, int chunks, const std::vector<std::string>& lists) {
  Schedule schedule{.name = "test",
                    .stages = static_cast<int>(lists.size()),
                    .microbatches = microbatches,
                    .chunks = chunks,
                    .placement = Placement::kLoop,
                    .actions = {}};
  for (const std::string& list : lists) schedule.actions.push_back(list_of(list));
  return schedule;
}

}  // namespace convoy
