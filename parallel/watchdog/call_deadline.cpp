// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog/call_deadline.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <utility>

#include "layers/base/host_name.h"
#include "layers/base/stopwatch.h"
#include "parallel/watchdog/without_signals.h"

namespace convoy {

namespace {

constexpr double kLap = 0.25;  // seconds; a lap that takes much longer says that the process was stopped
constexpr double kLongestLap = 1;

constexpr int kTurn = 2, kLastTurn = 10;  // seconds from the report of one rank to that of the next

std::atomic<int> late_call_rank{0};

[[noreturn]] void end_process(const std::string& call, double seconds) {
  const std::string line = fmt::format(
      "convoy: error: {} did not end within {:g} s on {} (pid {}): another rank has ended, hangs or cannot be reached "
      "(start the run again; raise parallel.timeout if the ranks are only slow)\n",
      call, seconds, host_name(), getpid());
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

}  // namespace

void set_late_call_rank(int world_rank) { late_call_rank = world_rank; }

CallDeadline::CallDeadline(std::string call, double seconds) : call_(std::move(call)), seconds_(seconds) {
  const WithoutSignals blocked;
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {  // no thread, no deadline: the call matters more
  }
}

CallDeadline::~CallDeadline() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void CallDeadline::watch() {
  std::unique_lock lock(mutex_);
  Stopwatch watch;
  double waited = 0;
  while (waited < seconds_) {
    const std::chrono::duration<double> next(std::min(kLap, seconds_ - waited));
    if (ended_.wait_for(lock, next, [this] { return over_; })) return;
    waited += std::min(kLongestLap, watch.lap());
  }
  const std::chrono::seconds turn(std::min(kLastTurn, kTurn * late_call_rank.load()));
  if (ended_.wait_for(lock, turn, [this] { return over_; })) return;
  end_process(call_, seconds_);
}

}  // namespace convoy
