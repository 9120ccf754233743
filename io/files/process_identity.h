// SPDX-License-Identifier: Apache-2.0
//
// Which process of which machine: enough to tell from elsewhere whether it still runs. Relies on /proc. Invariant: a
// process is called dead only when that is certain; pids say something only under the same boot and within the same pid
// namespace (containers), and are used again, so the start time belongs to them.
#pragma once

#include <cstdint>
#include <string>

namespace convoy {

struct ProcessIdentity {
  std::string host;
  std::string boot_id;  ///< of the kernel; empty: not known
  std::uint64_t pid_namespace = 0;
  std::int64_t pid = 0;
  std::uint64_t start_time = 0;  ///< clock ticks since boot
  bool operator==(const ProcessIdentity&) const = default;
};

[[nodiscard]] ProcessIdentity this_process();

/// What can be said about a process from here.
enum class Liveness { kRuns, kEnded, kUnknown };
[[nodiscard]] Liveness liveness(const ProcessIdentity& process);

}  // namespace convoy
