// SPDX-License-Identifier: Apache-2.0
//
// Verifies that the ranks of a schedule cannot deadlock, whatever the cost of its actions. Relies on lists of actions
// that are valid by themselves: schedule_check.h checks them first.
#pragma once

#include "parallel/schedule/schedule.h"

namespace convoy {

/// Throws an Error that names the stage and position where a rank receives in another order than its peer sends.
void check_message_order(const Schedule& schedule);

/// Throws Error naming stage and position of all that wait. Messages under the strictest rules that MPI allows, where
/// no send ends before its receive has begun: the sends and receives between two other actions start together, a rank
/// continues when its sends among them have matched their receives, a forward or backward waits for its own receive.
void check_deadlock(const Schedule& schedule);

}  // namespace convoy
