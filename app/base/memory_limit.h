// SPDX-License-Identifier: Apache-2.0
//
// How much memory this process may have, as Linux says: cgroups of either version, the node, resource limits. And
// whether the kernel has killed for memory in its cgroup. `root` is a folder that has proc/ and sys/ of another
// machine, for tests; empty: this one. What cannot be read is left out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layers/base/cgroups.h"

namespace convoy {

struct HostMemoryLimit {
  std::string name;  ///< "the memory limit of cgroup /slurm/job_7"
  std::string key;   ///< equal for processes of one node that share it; empty: this process alone
  double free = 0;   ///< bytes that may still be taken, page cache counted as free; may be negative
};

/// Resident and virtual memory of this process, and the private part of the virtual one, in bytes (proc(5)).
struct ProcessMemory {
  double resident = 0, virtual_size = 0, data = 0;
};
[[nodiscard]] ProcessMemory process_memory(const std::string& root = "");

/// All limits: those of the process's cgroup and the groups above it, the node's available memory, RLIMIT_AS and
/// RLIMIT_DATA. Swap is not memory.
[[nodiscard]] std::vector<HostMemoryLimit> memory_limits(const std::string& root = "");

/// This process's memory cgroup and the groups above it that can have limits, the lowest first. Folders with `root`.
[[nodiscard]] std::vector<Cgroup> memory_cgroups(const std::string& root = "");

/// How many processes the kernel has killed for memory in a cgroup (with version 2 also below it), or in that of this
/// process; -1 where it cannot be told.
[[nodiscard]] std::int64_t oom_kills(const Cgroup& group);
[[nodiscard]] std::int64_t oom_kills(const std::string& root = "");

/// The number behind `key` in lines "KEY NUMBER" (memory.stat) or "KEY: NUMBER kB" (meminfo, in bytes then); -1: none.
[[nodiscard]] double keyed_number(std::string_view text, std::string_view key);

}  // namespace convoy
