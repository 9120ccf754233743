// SPDX-License-Identifier: Apache-2.0
//
// Descendants of a process: finding them, killing process trees, and reaping orphans (ranks of an mpirun that was
// killed, or its ssh processes), which the kernel reparents to this process. Relies on /proc and on Linux's child
// subreapers. Invariant: a child that this process has started and still waits for is never treated as an orphan.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

namespace convoy {

/// The children that ChildProcess has started and not yet waited for. Hold the mutex from before fork() until the pid
/// is in.
struct StartedChildren {
  std::mutex mutex;
  std::set<pid_t> pids;
};
[[nodiscard]] StartedChildren& started_children();

/// How a wait for a child goes about it; tests have their own.
struct WaitSystem {
  std::function<pid_t(pid_t pid, int* status)> try_wait;  ///< waitpid() with WNOHANG
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void(std::chrono::milliseconds)> pause;
  [[nodiscard]] static WaitSystem real();
};

/// After a kill the kernel ends a process within this time, unless it hangs in the kernel (a file server that is gone).
inline constexpr std::chrono::seconds kKillLimit{10};

/// Waits for a child until `deadline`; false when it has not ended by then. True also when it is not there any more.
bool wait_for_child(pid_t pid, std::chrono::steady_clock::time_point deadline,
                    const WaitSystem& system = WaitSystem::real());

/// All descendants of the process on this machine, as they are now.
[[nodiscard]] std::vector<pid_t> descendants_of(pid_t root);

/// SIGKILL to the process and all its descendants on this machine.
void kill_tree(pid_t root);

/// Makes this process a subreaper: orphaned descendants become its children.
void adopt_orphans();

/// Terminates adopted orphans and their descendants: SIGTERM, then SIGKILL shortly after. Returns within kKillLimit,
/// even when the kernel cannot end one; the next call tries again.
void kill_orphans();

}  // namespace convoy
