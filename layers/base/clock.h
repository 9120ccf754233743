// SPDX-License-Identifier: Apache-2.0
//
// Clocks and time stamps.
#pragma once

#include <chrono>
#include <string>

namespace convoy {

/// Seconds from `start` to now.
[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// "2026-01-31T12:00:00Z", now.
[[nodiscard]] std::string utc_time();

/// "2026-01-31T13:00:00+01:00", now.
[[nodiscard]] std::string local_time();

}  // namespace convoy
