// SPDX-License-Identifier: Apache-2.0
//
// The signals that a user or a batch system sends to launch. Handlers only record. Invariant: signals within a second
// of the first count as one, since a batch system may send the same several times; one instance at a time.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

namespace convoy {

class SignalInbox {
 public:
  /// Catches these from now on, but for those that the parent had set to be ignored (nohup).
  explicit SignalInbox(const std::vector<int>& signals);
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  /// The first one, or nothing.
  [[nodiscard]] std::optional<int> first();
  /// Whether another came more than a second after the first.
  [[nodiscard]] bool insisted();

 private:
  void look();

  std::vector<int> caught_;
  int seen_ = 0;
  int first_ = 0;
  bool insisted_ = false;
  std::chrono::steady_clock::time_point first_at_;
};

}  // namespace convoy
