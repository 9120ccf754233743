// SPDX-License-Identifier: Apache-2.0
#include "parallel/base/wait_time.h"

#include <atomic>
#include <cstdint>

namespace convoy {

namespace {

constexpr double kNanosecond = 1e-9;
std::atomic<std::int64_t> waited_ns{0};

}  // namespace

double communication_wait_seconds() noexcept {
  return static_cast<double>(waited_ns.load(std::memory_order_relaxed)) * kNanosecond;
}

void add_communication_wait(double seconds) noexcept {
  if (seconds > 0) waited_ns.fetch_add(static_cast<std::int64_t>(seconds / kNanosecond), std::memory_order_relaxed);
}

}  // namespace convoy
