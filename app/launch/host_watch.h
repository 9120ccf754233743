// SPDX-License-Identifier: Apache-2.0
//
// Polls a host source on its own thread, so that a slow command or file system never blocks the supervisor. Invariant:
// hosts() is the last list that was read without an error.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "app/launch/host_source.h"

namespace convoy {

class HostWatch {
 public:
  /// Reads the source once; propagates its Error.
  explicit HostWatch(std::unique_ptr<HostSource> source);
  ~HostWatch();
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  [[nodiscard]] HostList hosts();
  /// Errors since the last call; an error that persists is returned once.
  [[nodiscard]] std::vector<std::string> take_complaints();
  [[nodiscard]] std::string name() const { return source_->name(); }

 private:
  void work();

  std::unique_ptr<HostSource> source_;
  std::mutex mutex_;
  std::condition_variable wake_;
  HostList hosts_;
  std::string last_complaint_;
  std::vector<std::string> complaints_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace convoy
