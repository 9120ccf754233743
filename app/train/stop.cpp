// SPDX-License-Identifier: Apache-2.0
#include "app/train/stop.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <span>
#include <thread>

#include "app/config/config.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::int64_t kCopiesNs = 1'000'000'000;  // what comes within this time of the first signal is a copy of it
constexpr double kMinMargin = 30;                  // seconds: the launcher and the file system want their time, too

std::atomic<std::int64_t> g_first_signal{0};  // ns of CLOCK_MONOTONIC; 0: none yet
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "signal handlers may not lock");

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void remember(int signal) {
  const std::int64_t now = now_ns();
  std::int64_t first = 0;
  if (g_first_signal.compare_exchange_strong(first, now) || now - first < kCopiesNs) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // takes effect when the handler returns
}

// No thread that computes may run a handler: oneDNN's float32 products point the stack pointer at their workspace in
// the heap (jit_avx_gemm_f32), and the kernel would write the handler's frame over what lies below it. The mask holds
// for this thread and those that it starts from now on; a thread of its own, which lasts as long as the process,
// handles the signals.
void handle_on_own_thread(const sigset_t& signals) {
  std::thread([signals] {
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    while (true) ::pause();
  }).detach();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

StopRequest::StopRequest(const std::vector<std::string>& signals, std::optional<std::chrono::seconds> max_time) {
  g_first_signal = 0;
  sigset_t handled;
  sigemptyset(&handled);
  for (const std::string& name : signals) {
    std::signal(signal_number(name), remember);
    sigaddset(&handled, signal_number(name));
  }
  if (!signals.empty()) handle_on_own_thread(handled);
  if (max_time) deadline_ = Clock::now() + *max_time;
}

void StopRequest::set_job_end(Seconds from_now) {
  job_end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(from_now);
}

void StopRequest::observe_boundary(Seconds elapsed) { longest_boundary_ = std::max(longest_boundary_, elapsed); }

void StopRequest::observe_checkpoint(Seconds elapsed) { longest_checkpoint_ = std::max(longest_checkpoint_, elapsed); }

bool StopRequest::signalled() const { return g_first_signal != 0; }

StopRequest::Seconds StopRequest::margin() const {
  return Seconds(kMinMargin) + 2 * (longest_boundary_ + longest_checkpoint_);
}

bool StopRequest::time_is_up() const {
  const Clock::time_point now = Clock::now();
  if (deadline_ && now >= *deadline_) return true;
  return job_end_ && now + margin() >= *job_end_;
}

void StopRequest::check(const std::string& doing) const {
  if (!signalled() && !time_is_up()) return;
  throw Error(fmt::format("stopped while {} ({}); run the same command again to start anew", doing,
                          signalled() ? "signal" : "its time is over"),
              ExitCode::kStopped);
}

StopReason agree_on_stop(Communicator& all, const StopRequest& stop) {
  std::array<double, 2> ranks{stop.signalled() ? 1.0 : 0.0, stop.time_is_up() ? 1.0 : 0.0};
  all.all_reduce(std::span<double>(ranks), ReduceOp::kSum, "stop");
  return stop_reason(ranks[0], ranks[1]);
}

}  // namespace convoy
