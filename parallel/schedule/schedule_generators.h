// SPDX-License-Identifier: Apache-2.0
//
// The orders of forwards and backwards that the schedules are made of: for each stage what it computes, without sends,
// receives, reduction or step. Relies on numbers that suit the schedule: make_schedule() checks them. Invariant: on
// each chunk forwards come in the order of the microbatches, and so do backwards, or each of their halves by itself.
#pragma once

#include <vector>

#include "parallel/schedule/schedule.h"

namespace convoy {

/// By stage, what it computes, in order.
using ComputeLists = std::vector<std::vector<Action>>;

/// F0 B0 F1 B1 ...; with one microbatch this is also the model schedule, for any number of stages.
[[nodiscard]] ComputeLists one_after_another(int stages, int microbatches);

/// All forwards, then all backwards. Idle 3 (P - 1) in units of a forward, M activations in flight.
[[nodiscard]] ComputeLists gpipe_order(int stages, int microbatches);

/// As many forwards as there are stages behind, then one forward and one backward in turn. Idle 3 (P - 1), at most
/// P - stage activations in flight.
[[nodiscard]] ComputeLists one_forward_one_backward(int stages, int microbatches);

/// 1f1b over rounds of P microbatches on one chunk after the other. Idle 3 (P - 1) in units of a forward of one chunk.
[[nodiscard]] ComputeLists interleaved_order(int stages, int microbatches, int chunks);

/// ZB-H1. Idle P - 1 from M = P on, below that P - 1 + (P - M); at most min(P, M) activations in flight.
[[nodiscard]] ComputeLists zero_bubble_order(int stages, int microbatches);

/// ZB-V. Idle 0 from M = 2P - 1 on, below that 2 (2P - 1 - M); at most 2P chunk activations in flight.
[[nodiscard]] ComputeLists zb_v_order(int stages, int microbatches);

}  // namespace convoy
