// SPDX-License-Identifier: Apache-2.0
//
// How long this process has waited for communication: the sum over all waits of its threads for MPI operations, and for
// NCCL calls to get under way (what a GPU waits for on its own streams is not the host's time). Invariant: never falls.
#pragma once

namespace convoy {

/// Seconds since the start of the process, without the waits that are under way.
[[nodiscard]] double communication_wait_seconds() noexcept;

/// For whoever waits: adds the seconds of one wait.
void add_communication_wait(double seconds) noexcept;

}  // namespace convoy
