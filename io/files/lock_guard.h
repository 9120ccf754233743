// SPDX-License-Identifier: Apache-2.0
//
// Keeps those who remove a lock file (its owner at the end, one who takes over a stale one) from state so at the same
// time: a kernel lock on a file beside it. Relies on flock(); where a file system has none, held() is true all the
// same, and the remover's own second look is what is left. Invariant: held only while the object lives; a process that
// ends lets go of it.
#pragma once

#include <chrono>
#include <string>

namespace convoy {

class RemovalGuard {
 public:
  /// Waits so long at most.
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
