// SPDX-License-Identifier: Apache-2.0
#include "layers/cpu/contention.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>

namespace convoy {

namespace {

constexpr double kNanosecond = 1e-9;
constexpr double kSlice = 3e-3;  // seconds: Linux's base slice on machines of several CPUs is 2 to 3 ms

}  // namespace

std::optional<double> parse_run_queue_wait(std::string_view schedstat) {
  std::istringstream text{std::string(schedstat)};
  std::uint64_t run = 0, wait = 0;
  if (!(text >> run >> wait)) return std::nullopt;
  return static_cast<double>(wait) * kNanosecond;
}

double largest_wait_share(const ThreadWaits& before, const ThreadWaits& after, double wall) {
  double largest = 0;
  for (const auto& [thread, wait] : after) {
    const auto found = before.find(thread);
    if (found != before.end()) largest = std::max(largest, wait - found->second);
  }
  return wall > 0 ? largest / wall : 0;
}

double wait_share_of_switches(std::int64_t switches, double wall) {
  return wall > 0 ? static_cast<double>(switches) * kSlice / wall : 0;
}

bool ContentionDetector::add(double wait_share) {
  const double share = std::clamp(wait_share, 0.0, 1.0);
  const bool above = share > kBegins;
  if (contended_) {
    mean_ += kWeight * (share - mean_);
    contended_ = mean_ >= kEnds;
  } else if (above && before_) {
    contended_ = true;
    mean_ = share;
  }
  before_ = above;
  return contended_;
}

}  // namespace convoy
