// SPDX-License-Identifier: Apache-2.0
//
// Whether threads compete for CPUs: pure functions over what the kernel counts. A thread that is ready but does not run
// waits on a run queue, and the kernel sums that time (/proc/self/task/*/schedstat). Threads of this process that are
// more than its CPUs compete like those of others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

namespace convoy {

/// Seconds that a thread has waited on run queues: the second number of its schedstat; nothing when the text has none.
[[nodiscard]] std::optional<double> parse_run_queue_wait(std::string_view schedstat);

/// Of each thread by its id, run-queue wait in seconds.
using ThreadWaits = std::map<int, double>;

/// The largest share of `wall` seconds that any one thread of both readings waited between them. A team at a barrier is
/// as fast as its slowest thread.
[[nodiscard]] double largest_wait_share(const ThreadWaits& before, const ThreadWaits& after, double wall);

/// The same where the kernel keeps no schedstat, from the number of involuntary context switches: for each, a thread
/// waited about one time slice.
[[nodiscard]] double wait_share_of_switches(std::int64_t switches, double wall);

/// Decides from one window's share after the other, with hysteresis: contention begins after two windows in a row above
/// the upper threshold, and ends when the exponential mean, over some ten windows, is below the lower one.
class ContentionDetector {
 public:
  static constexpr double kBegins = 0.2;
  static constexpr double kEnds = 0.1;
  static constexpr double kWeight = 0.1;  ///< of a window in the mean

  /// Adds a window; returns whether the CPUs are contended after it.
  bool add(double wait_share);
  [[nodiscard]] bool contended() const { return contended_; }

 private:
  bool contended_ = false;
  bool before_ = false;  // whether the last window was above the upper threshold
  double mean_ = 0;      // while contended
};

}  // namespace convoy
