// SPDX-License-Identifier: Apache-2.0
//
// Verifies that a schedule is a complete training step before it runs: each stage, then all stages together. Invariant:
// a schedule that passes computes every gradient exactly once and in the order of the microbatches, updates the
// parameters once, with all gradients, and terminates even if every send blocks until its receive.
#pragma once

#include "parallel/schedule/schedule.h"

namespace convoy {

/// Throws Error naming the stage and the position of the first action that breaks a rule. Pure; any rank may call it.
///   - every forward once and every backward once, whole or as its two halves, after its forward; on each chunk all in
///   the
///     order of the microbatches
///   - one reduction after the last backward, one optimizer step at the very end
///   - what another rank makes is received once, before it is needed; what another rank needs is sent once, after it is
///     made; nothing else is sent or received
///   - each rank receives from each other rank in the order in which that one sends
///   - no deadlock, of computing or of messages (schedule_deadlock.h)
void check_schedule(const Schedule& schedule);

/// The same of a schedule of forwards only: with any other compute, reduction or step it is broken.
void check_forward_schedule(const Schedule& schedule);

}  // namespace convoy
