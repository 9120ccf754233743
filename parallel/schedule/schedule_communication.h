// SPDX-License-Identifier: Apache-2.0
//
// The sends and receives of a schedule. Who sends to whom follows from the placement of the virtual stages alone; when
// is taken from a simulation in which every forward and every half of a backward takes one unit of time. Neighbours on
// the same rank (the turning point of a V, several chunks on one stage) hand over in memory, without messages.
// Invariant: what one rank sends another comes in the order in which the other starts to receive it.
#pragma once

#include <optional>

#include "parallel/schedule/schedule.h"

namespace convoy {

/// The other end of a send or receive: the stage, and how its list calls what is sent here, or what is received here.
struct OtherEnd {
  int stage = 0;
  Action action;
};

/// None when there is no such virtual stage or when the same rank holds it: then no message may be sent.
[[nodiscard]] std::optional<OtherEnd> other_end(const Schedule& schedule, int stage, const Action& communication);

/// Into lists without sends and receives. A send comes right after the action that computes what it sends. A receive
/// comes after the actions that start before the end of that one, so that it is started early and never waits.
void insert_communication(Schedule& schedule);

}  // namespace convoy
