// SPDX-License-Identifier: Apache-2.0
//
// Reasons to end a run early: a signal, or its time is up. Handlers only record; the trainer asks at each step
// boundary and agrees with all ranks. A second signal of the same kind ends the process at once, as by default.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace convoy {

class StopRequest {
 public:
  /// Catches `signals` ("SIGTERM", ...) from now on; max_time counts from now.
  StopRequest(const std::vector<std::string>& signals, std::optional<std::chrono::seconds> max_time);
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  [[nodiscard]] bool signalled() const;
  [[nodiscard]] bool time_is_up() const;

 private:
  std::vector<int> signals_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

}  // namespace convoy
