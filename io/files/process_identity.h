// SPDX-License-Identifier: Apache-2.0
//
// Identifies a process across machines, so that another process can tell whether it still runs. Relies on /proc.
// Invariant: a process is reported dead only when that is certain. A pid is meaningful only under the same boot and in
// the same pid namespace (containers); pids are reused, so the start time is part of the identity.
#pragma once

#include <cstdint>
#include <string>

namespace convoy {

struct ProcessIdentity {
  std::string host;
  std::string boot_id;  ///< of the kernel; empty: unknown
  std::uint64_t pid_namespace = 0;
  std::int64_t pid = 0;
  std::uint64_t start_time = 0;  ///< clock ticks since boot
  bool operator==(const ProcessIdentity&) const = default;
};

[[nodiscard]] ProcessIdentity this_process();

/// What this process knows about another one.
enum class Liveness { kRuns, kEnded, kUnknown };
[[nodiscard]] Liveness liveness(const ProcessIdentity& process);

}  // namespace convoy
