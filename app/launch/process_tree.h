// SPDX-License-Identifier: Apache-2.0
//
// Descendants of this process: killing process trees, and reaping orphans (ranks of an mpirun that was killed, or its
// ssh processes), which the kernel reparents to this process. Relies on /proc and on Linux's child subreapers.
// Invariant: a child that this process has started and still waits for is never treated as an orphan.
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

/// Makes this process a subreaper: orphaned descendants become its children.
void adopt_orphans();

/// Terminates adopted orphans and their descendants: SIGTERM, then SIGKILL shortly after.
void kill_orphans();

}  // namespace convoy
