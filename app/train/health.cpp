// SPDX-License-Identifier: Apache-2.0
#include "app/train/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <sstream>
#include <utility>

#include "parallel/comm/host_exchange.h"

namespace convoy {

namespace {

constexpr double kUnevenShare = 1.25;   // of the median
constexpr double kUnevenSeconds = 0.5;  // lost since the last report

template <class Value>
MinMedianMax min_median_max(const std::vector<RankTimes>& ranks, const Value& value) {
  std::vector<double> values;
  values.reserve(ranks.size());
  for (const RankTimes& rank : ranks) values.push_back(value(rank));
  std::sort(values.begin(), values.end());
  return {values.front(), values[(values.size() - 1) / 2], values.back()};
}

std::string to_string(const MinMedianMax& s) { return fmt::format("{:.3g}/{:.3g}/{:.3g} s", s.min, s.median, s.max); }

}  // namespace

bool HealthReport::uneven() const {
  return slowdown > kUnevenShare && (busy.max - busy.median) * static_cast<double>(steps) > kUnevenSeconds;
}

HealthReport summarize(const std::vector<RankTimes>& ranks, std::int64_t steps) {
  HealthReport report;
  report.steps = steps;
  report.step = min_median_max(ranks, [](const RankTimes& r) { return r.step; });
  report.data_wait = min_median_max(ranks, [](const RankTimes& r) { return r.data_wait; });
  report.communication_wait = min_median_max(ranks, [](const RankTimes& r) { return r.communication_wait; });
  report.busy = min_median_max(ranks, [](const RankTimes& r) { return r.busy(); });
  const auto slowest = std::max_element(ranks.begin(), ranks.end(),
                                        [](const RankTimes& a, const RankTimes& b) { return a.busy() < b.busy(); });
  report.slowest_rank = static_cast<int>(slowest - ranks.begin());
  report.slowest_host = slowest->host;
  report.slowdown = report.busy.median > 0 ? report.busy.max / report.busy.median : 1;
  return report;
}

std::string health_line(const HealthReport& r) {
  return fmt::format(
      "busy {} a step (min/median/max of the ranks), data wait {}, communication wait {}; slowest: rank {} on {} "
      "({:.2f} x the median)",
      to_string(r.busy), to_string(r.data_wait), to_string(r.communication_wait), r.slowest_rank, r.slowest_host,
      r.slowdown);
}

HealthMonitor::HealthMonitor(Communicator& communicator, const std::string& host)
    : rank_(static_cast<std::size_t>(communicator.rank())), size_(static_cast<std::size_t>(communicator.size())) {
  std::istringstream hosts(join_texts(communicator, host + "\n", "names of the hosts"));
  for (std::string one; std::getline(hosts, one);) hosts_.push_back(one);
}

void HealthMonitor::add(double step, double data_wait, double communication_wait) {
  ++steps_;
  sums_.step += step;
  sums_.data_wait += data_wait;
  sums_.communication_wait += communication_wait;
}

void HealthMonitor::put(std::span<double> slots) const {
  std::fill(slots.begin(), slots.end(), 0.0);
  const double n = static_cast<double>(std::max<std::int64_t>(1, steps_));
  double* own = &slots[kNumbers * rank_];
  own[0] = sums_.step / n;
  own[1] = sums_.data_wait / n;
  own[2] = sums_.communication_wait / n;
}

HealthReport HealthMonitor::take(std::span<const double> slots) {
  std::vector<RankTimes> ranks;
  for (std::size_t rank = 0; rank < size_; ++rank) {
    const double* of_rank = &slots[kNumbers * rank];
    ranks.push_back({of_rank[0], of_rank[1], of_rank[2], hosts_.empty() ? "" : hosts_[rank]});
  }
  sums_ = {};
  return summarize(ranks, std::exchange(steps_, 0));
}

}  // namespace convoy
