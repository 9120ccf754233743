// SPDX-License-Identifier: Apache-2.0
//
// How another process of this node is state, as /proc says: a stopped rank cannot tell it itself. Relies on Linux.
// Invariant: a process that cannot be told apart from another one (its number was given again, or belongs to another
// container) is unknown, never gone.
#pragma once

#include <cstdint>
#include <string_view>

namespace convoy {

enum class ProcessState : std::uint32_t { kUnknown, kRunning, kSleeping, kStopped, kTraced, kBlocked, kGone };

/// What identifies one process of a machine.
struct ProcessId {
  std::int64_t pid = 0;
  std::uint64_t start = 0;       ///< of the process, in the kernel's ticks since the machine started; 0: unknown
  std::uint64_t namespace_ = 0;  ///< of process numbers (containers have their own); 0: unknown
};

/// This process.
[[nodiscard]] ProcessId own_process();
/// The state of a process of this machine.
[[nodiscard]] ProcessState process_state(const ProcessId& process);
/// The state in the text of /proc/PID/stat, and when the process started (0 when the text is not understood).
struct ProcessStat {
  ProcessState state = ProcessState::kUnknown;
  std::uint64_t start = 0;
};
[[nodiscard]] ProcessStat parse_process_stat(std::string_view text);

}  // namespace convoy
