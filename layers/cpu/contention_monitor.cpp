// SPDX-License-Identifier: Apache-2.0
#include "layers/cpu/contention_monitor.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "layers/base/file_text.h"
#include "layers/base/stopwatch.h"
#include "layers/cpu/contention.h"
#include "layers/cpu/openmp_waits.h"

namespace convoy {

namespace {

constexpr std::chrono::milliseconds kWindow{100};
// Spinning threads that compete are interrupted at every time slice, some 30 times in a window. Below this number there
// is no contention, and no other file is read.
constexpr std::int64_t kFewSwitches = 3;

std::atomic<bool> waits_block{false};

std::int64_t involuntary_switches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

// Of all threads; empty where the kernel does not count.
ThreadWaits thread_waits() {
  ThreadWaits waits;
  const std::string folder = "/proc/self/task";
  DIR* tasks = opendir(folder.c_str());
  if (tasks == nullptr) return waits;
  while (const dirent* entry = readdir(tasks)) {
    const std::string name = entry->d_name;
    int thread = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), thread).ec != std::errc()) continue;
    std::string path = folder;
    path.append("/").append(name).append("/schedstat");
    const auto wait = parse_run_queue_wait(file_text(path).value_or(""));
    if (wait) waits[thread] = *wait;
  }
  closedir(tasks);
  return waits;
}

}  // namespace

bool cpus_contended() noexcept { return waits_block.load(std::memory_order_relaxed); }

class ContentionMonitor::Sampler {
 public:
  explicit Sampler(WaitPolicy policy) : policy_(policy) {
    if (policy == WaitPolicy::kPassive) set_blocking(true);
    if (policy != WaitPolicy::kAuto) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for other threads
    thread_ = std::thread([this] { sample(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Sampler() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    end_.notify_all();
    if (thread_.joinable()) thread_.join();
    set_blocking(false);
  }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  bool take_first() noexcept { return contended_once_.load(std::memory_order_relaxed) && !taken_.exchange(true); }

 private:
  void set_blocking(bool blocking) {
    // What the user said of OpenMP in its own variables holds, unless device.wait_policy says otherwise.
    if (policy_ == WaitPolicy::kPassive || !OpenmpWaits::user_chose()) openmp_.set_blocking(blocking);
    waits_block.store(blocking, std::memory_order_relaxed);
  }

  void sample() {
    ContentionDetector detector;
    ThreadWaits before;
    std::int64_t switches = involuntary_switches();
    Stopwatch watch;
    while (!over()) {
      const double wall = watch.lap();
      const std::int64_t now = involuntary_switches();
      const std::int64_t more = now - switches;
      switches = now;
      if (!detector.contended() && more < kFewSwitches) {
        before.clear();
        detector.add(0);
        continue;
      }
      ThreadWaits waits = thread_waits();
      if (waits.empty()) {
        detector.add(wait_share_of_switches(more, wall));
      } else if (!before.empty()) {
        detector.add(largest_wait_share(before, waits, wall));
      }
      before = std::move(waits);
      if (detector.contended() == cpus_contended()) continue;
      set_blocking(detector.contended());
      if (detector.contended()) contended_once_ = true;
    }
  }

  // After a window.
  bool over() {
    std::unique_lock lock(mutex_);
    return end_.wait_for(lock, kWindow, [this] { return ends_; });
  }

  WaitPolicy policy_;
  OpenmpWaits openmp_;
  std::atomic<bool> contended_once_{false}, taken_{false};
  std::mutex mutex_;
  std::condition_variable end_;
  bool ends_ = false;
  std::thread thread_;
};

ContentionMonitor::ContentionMonitor(WaitPolicy policy) : sampler_(std::make_unique<Sampler>(policy)) {}
ContentionMonitor::~ContentionMonitor() = default;

bool ContentionMonitor::take_first_contention() noexcept { return sampler_->take_first(); }

}  // namespace convoy
