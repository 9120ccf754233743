// SPDX-License-Identifier: Apache-2.0
//
// The time that this process has waited for communication: all waits of its threads for MPI operations, and for the
// start of NCCL operations (waits of GPU streams are not host time). Invariant: never decreases.
#pragma once

namespace convoy {

/// Seconds since the start of the process, without waits in progress.
[[nodiscard]] double communication_wait_seconds() noexcept;

/// Adds the seconds of one wait.
void add_communication_wait(double seconds) noexcept;

}  // namespace convoy
