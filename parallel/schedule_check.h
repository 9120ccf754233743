// SPDX-License-Identifier: Apache-2.0
//
// Proves that a schedule is a whole training step, before anything runs it. Looks at each stage by itself.
// Invariant: a schedule that passes computes every gradient exactly once and steps once, with all of them.
#pragma once

#include "parallel/schedule.h"

namespace convoy {

/// Throws Error naming the stage and the position of the first action that breaks a rule: every forward
/// and every backward once, backward after its forward, one reduction after the last backward, one optimizer
/// step at the very end. Pure; any rank may call it.
void check_schedule(const Schedule& schedule);

}  // namespace convoy
