// SPDX-License-Identifier: Apache-2.0
//
// Ends this process soon after its launcher (mpirun, its daemon, srun's step) has died: a rank that waits, computes or
// is suspended would otherwise outlive a killed job and block the next one. Calls no MPI. Relies on atomic file writes,
// so that exiting at any time is safe. Invariant: the thread handles no signals.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace convoy {

class LauncherWatchdog {
 public:
  /// Watches the parent of this process from now on. `speaks`: this rank reports why it ends.
  explicit LauncherWatchdog(bool speaks);
  ~LauncherWatchdog();
  LauncherWatchdog(const LauncherWatchdog&) = delete;
  LauncherWatchdog& operator=(const LauncherWatchdog&) = delete;

 private:
  void watch();

  pid_t launcher_;
  bool speaks_;
  bool over_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread thread_;
};

}  // namespace convoy
