// SPDX-License-Identifier: Apache-2.0
#include "layers/cpu/openmp_waits.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

// Of LLVM's runtime; null with another one. Public: see "LLVM-specific extensions" in its documentation.
extern "C" {
__attribute__((weak)) void kmp_set_blocktime(int milliseconds);
__attribute__((weak)) int kmp_get_blocktime();
}

namespace convoy {

namespace {

constexpr std::array kVariables{"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"};

std::atomic<bool> llvm_teams_block{false};  // what threads are to follow

// Blocks the threads of a group until open() is called.
class Gate {
 public:
  /// From each thread of a group of `size`.
  void arrive_and_wait(int size) {
    std::unique_lock lock(mutex_);
    size_ = size;
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  /// Waits for the whole group; returns its size.
  int wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return size_ > 0 && arrived_ == size_; });
    return size_;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int size_ = 0;
  int arrived_ = 0;
  bool open_ = false;
};

// Whether this process may start so many more threads: libgomp ends the process where it cannot.
bool can_start(int threads) {
  Gate gate;
  std::vector<std::thread> started;
  bool all = true;
  try {
    for (int i = 0; i < threads; ++i) started.emplace_back([&] { gate.arrive_and_wait(threads); });
  } catch (const std::system_error&) {
    all = false;
  }
  gate.open();
  for (std::thread& each : started) each.join();
  return all;
}

}  // namespace

// A team that sleeps.
class OpenmpWaits::Team {
 public:
  explicit Team(int threads)
      : holder_([this, threads] {
          omp_set_dynamic(0);  // for this thread
#pragma omp parallel num_threads(threads)
          gate_.arrive_and_wait(omp_get_num_threads());
        }),
        size_(gate_.wait_for_all()) {
  }
  ~Team() {
    gate_.open();
    holder_.join();  // its team ends with it
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  [[nodiscard]] int size() const { return size_; }

 private:
  Gate gate_;
  std::thread holder_;
  int size_;
};

OpenmpWaits::OpenmpWaits() = default;
OpenmpWaits::~OpenmpWaits() { set_blocking(false); }

bool OpenmpWaits::user_chose() {
  return std::any_of(kVariables.begin(), kVariables.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

bool OpenmpWaits::set_blocking(bool blocking) noexcept {
  if (kmp_set_blocktime != nullptr) {
    llvm_teams_block = blocking;
    return blocking;
  }
  if (!blocking) team_.reset();
  if (!blocking || team_) return blocking;
  // With so many threads asleep, a team of two is more than the CPUs: libgomp does not count the thread that starts the
  // sleeping team.
  const int threads = std::max(2, omp_get_num_procs());
  try {
    if (!can_start(threads)) return false;
    team_ = std::make_unique<Team>(threads);
    if (team_->size() < threads) team_.reset();  // OMP_THREAD_LIMIT
  } catch (const std::exception&) {              // no memory, or no thread
    team_.reset();
  }
  return team_ != nullptr;
}

void follow_openmp_waits() noexcept {
  thread_local int usual = -1;  // of this thread, in ms; -1: not changed
  const bool blocking = llvm_teams_block.load(std::memory_order_relaxed);
  if (kmp_set_blocktime == nullptr || blocking == (usual >= 0)) return;
  if (blocking) {
    usual = kmp_get_blocktime();
    kmp_set_blocktime(0);
  } else {
    kmp_set_blocktime(usual);
    usual = -1;
  }
}

}  // namespace convoy
