// SPDX-License-Identifier: Apache-2.0
//
// Laps of the monotonic clock.
#pragma once

#include <chrono>

namespace convoy {

class Stopwatch {
 public:
  /// Seconds since the last call, or since the start.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> passed = now - last_;
    last_ = now;
    return passed.count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace convoy
