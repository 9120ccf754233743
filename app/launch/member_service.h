// SPDX-License-Identifier: Apache-2.0
//
// Starts on this host what the leader's mpirun asks for, on a thread of its own. Relies on remote_request.h for the
// files. Invariant: a command whose request is gone is killed, and none outlives this object or its process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "app/launch/child_process.h"

namespace convoy {

class MemberService {
 public:
  /// Requests in `folder`, which it makes.
  explicit MemberService(std::string folder);
  ~MemberService();
  MemberService(const MemberService&) = delete;
  MemberService& operator=(const MemberService&) = delete;

  /// Whether a command runs here.
  [[nodiscard]] bool busy() const { return running_ > 0; }

 private:
  void work();
  void take_up_requests();
  void look_at_commands();
  void start(const std::string& path);

  const std::string folder_;
  std::map<std::string, std::unique_ptr<ChildProcess>> commands_;  // by path without ending
  std::atomic<std::size_t> running_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace convoy
