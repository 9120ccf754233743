// SPDX-License-Identifier: Apache-2.0
//
// Processes below this one: killing whole trees, and those whose parent has died (ranks of an mpirun that was killed,
// an ssh that it left), which the kernel gives to this process once it adopts them. Relies on /proc and on Linux's
// child subreapers. Invariant: what this process has started itself, and still waits for, is never taken for an orphan.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <set>

namespace convoy {

/// The children that ChildProcess has started and not yet waited for. Hold the mutex from before fork() until the pid
/// is in.
struct StartedChildren {
  std::mutex mutex;
  std::set<pid_t> pids;
};
[[nodiscard]] StartedChildren& started_children();

/// SIGKILL to the process and all its descendants on this machine.
void kill_tree(pid_t root);

/// From now on processes whose parent dies become children of this one.
void adopt_orphans();

/// Ends those that it has adopted, with all below them: told first, killed a moment later.
void kill_orphans();

}  // namespace convoy
