// SPDX-License-Identifier: Apache-2.0
//
// Load balance of the ranks: each rank's mean times per step since the last report, exchanged every log.every_steps. In
// synchronous training every rank's step takes as long as the slowest one's, so the straggler is the rank with the
// largest busy time: the step without its waits for others. Invariant: all ranks report at the same steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace convoy {

/// Of one rank, mean seconds per step.
struct RankTimes {
  double step = 0;
  double data_wait = 0;           ///< until the loader had the batch
  double communication_wait = 0;  ///< for other ranks and the network
  std::string host;
  [[nodiscard]] double busy() const { return step - communication_wait; }
};

/// Over the ranks, seconds.
struct MinMedianMax {
  double min = 0, median = 0, max = 0;
};

struct HealthReport {
  std::int64_t steps = 0;  ///< number of steps in the means
  MinMedianMax step, data_wait, communication_wait, busy;
  int slowest_rank = 0;
  std::string slowest_host;
  double slowdown = 1;  ///< the slowest rank's busy time over the median

  /// Whether the straggler is worth a warning: a quarter above the median, and half a second in total.
  [[nodiscard]] bool uneven() const;
};

/// One row per rank. An even number of ranks has the lower of the two middle values as its median.
[[nodiscard]] HealthReport summarize(const std::vector<RankTimes>& ranks, std::int64_t steps);

/// "busy 0.612/0.630/0.922 s a step (min/median/max), data wait ..., slowest: rank 3 on n2 (1.46 x the median)"
[[nodiscard]] std::string health_line(const HealthReport& report);

class HealthMonitor {
 public:
  /// Rank 0 learns the hosts of all ranks. Collective.
  HealthMonitor(Communicator& communicator, const std::string& host);
  /// After each step: its length and, of that, the waits (seconds).
  void add(double step, double data_wait, double communication_wait);
  /// The report is part of another sum over the ranks: each rank sets its own slots of these, and zeros elsewhere.
  [[nodiscard]] std::size_t slots() const { return kNumbers * size_; }
  void put(std::span<double> slots) const;
  /// Evaluates the summed numbers and starts the next report. Only on rank 0 it has a host.
  [[nodiscard]] HealthReport take(std::span<const double> slots);

 private:
  static constexpr std::size_t kNumbers = 3;

  std::vector<std::string> hosts_;  // on rank 0
  std::size_t rank_, size_;
  RankTimes sums_;
  std::int64_t steps_ = 0;
};

}  // namespace convoy
