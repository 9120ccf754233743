// SPDX-License-Identifier: Apache-2.0
//
// Proves that the ranks of a schedule do not wait for each other for ever, whatever anything costs. Relies on lists
// that are right one by one: schedule_check.h looks at them first.
#pragma once

#include "parallel/schedule/schedule.h"

namespace convoy {

/// Throws Error naming stage and position where a rank receives in another order than its partner sends.
void check_message_order(const Schedule& schedule);

/// Throws Error naming stage and position of all that wait. Messages under the strictest rules that MPI allows, where
/// no send ends before its receive has begun: the sends and receives between two other actions start together, a rank
/// continues when its sends among them have matched their receives, a forward or backward waits for its own receive.
void check_deadlock(const Schedule& schedule);

}  // namespace convoy
