// SPDX-License-Identifier: Apache-2.0
//
// A deadline for calls that block inside MPI and cannot be left: MPI_Init, MPI_Finalize, the making of communicators,
// windows and shared memory. When it passes, the process reports the call and ends with exit code 1, and the launcher
// ends the job. Private to parallel/. Relies on a thread that handles no signals. Invariant: time that the process was
// stopped does not count.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace convoy {

class CallDeadline {
 public:
  /// `call`: what is called, for the report. From now until the destructor at most `seconds` may go by.
  CallDeadline(std::string call, double seconds);
  ~CallDeadline();
  CallDeadline(const CallDeadline&) = delete;
  CallDeadline& operator=(const CallDeadline&) = delete;

 private:
  void watch();

  const std::string call_;
  const double seconds_;
  bool over_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread thread_;
};

/// Ranks report in the order of `world_rank`, so that the first one ends the job before the others repeat it.
void set_late_call_rank(int world_rank);

}  // namespace convoy
