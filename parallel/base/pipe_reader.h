// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace convoy {

/// Waits until what was written to the pipe `descriptor` has been read, `limit` at most; returns at once for what is no
/// pipe. PRRTE, the launcher of Open MPI 5, drops what it has not yet read from a rank when that rank calls MPI_Abort.
void wait_for_pipe_reader(int descriptor, std::chrono::milliseconds limit) noexcept;

}  // namespace convoy
