// SPDX-License-Identifier: Apache-2.0
//
// Ends this process soon after its launcher (mpirun, its daemon, srun's step) has gone: a rank that waits, computes or
// is stopped would otherwise outlive a killed job and stand in the way of the next one. Calls no MPI. Relies on files
// being written under another name first, so that ending at any moment is safe. Invariant: the thread takes no signals.
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
