// SPDX-License-Identifier: Apache-2.0
//
// Mutual exclusion of processes that remove a lock file (its owner at the end, or a process that takes over a stale
// lock): a kernel lock on a file beside it. Relies on flock(); on file systems without it held() is true, and only the
// remover's check of the token remains. Invariant: the kernel releases the lock when the process ends.
#pragma once

#include <chrono>
#include <string>

namespace convoy {

class RemovalGuard {
 public:
  /// Waits for at most this long.
  RemovalGuard(const std::string& lock_path, std::chrono::milliseconds limit);
  ~RemovalGuard();
  RemovalGuard(const RemovalGuard&) = delete;
  RemovalGuard& operator=(const RemovalGuard&) = delete;
  [[nodiscard]] bool held() const { return held_; }

 private:
  int descriptor_ = -1;
  bool held_ = false;
};

}  // namespace convoy
