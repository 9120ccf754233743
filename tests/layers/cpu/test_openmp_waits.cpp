// SPDX-License-Identifier: Apache-2.0
#include "layers/cpu/openmp_waits.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "layers/base/file_text.h"
#include "layers/base/process_state.h"

using namespace convoy;

namespace {

constexpr int kWaits = 20;
// Of CPU time: a short spin takes some 5 us, a long one from 0.3 to 20 ms, depending on the CPU.
constexpr std::int64_t kSpunNs = 100'000;

std::int64_t cpu_time_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

bool sleeps(int thread) {
  const auto text = file_text(fmt::format("/proc/self/task/{}/stat", thread));
  return text && parse_process_stat(*text).state == ProcessState::kSleeping;
}

// How many of kWaits waits at a barrier blocked. The thread that comes late watches the one that waits until it sleeps,
// or until it has taken the CPU time of a long spin; so the answer does not depend on who runs when.
int blocked_waits() {
  int blocked = 0;
  std::atomic<int> waiting{0}, thread{0};
  std::atomic<std::int64_t> start{0};
  clockid_t clock{};
#pragma omp parallel num_threads(2)
  for (int i = 0; i < kWaits; ++i) {
#pragma omp barrier
    if (omp_get_thread_num() == 1) {
      pthread_getcpuclockid(pthread_self(), &clock);
      thread = gettid();
      start = cpu_time_ns(clock);
      waiting = i + 1;
    } else {
      while (waiting <= i) sched_yield();
      while (true) {
        const bool asleep = sleeps(thread);
        if (cpu_time_ns(clock) - start > kSpunNs) break;
        if (asleep) {
          ++blocked;
          break;
        }
      }
    }
#pragma omp barrier
  }
  return blocked;
}

}  // namespace

TEST_CASE("waits of OpenMP teams block and spin again, as often as one likes") {
  if (OpenmpWaits::user_chose()) return;
  OpenmpWaits waits;
  for (int round = 0; round < 3; ++round) {
    CHECK(waits.set_blocking(true));
    CHECK(waits.set_blocking(true));
    follow_openmp_waits();
    CHECK(blocked_waits() == kWaits);
    CHECK_FALSE(waits.set_blocking(false));
    CHECK_FALSE(waits.set_blocking(false));
    follow_openmp_waits();
    CHECK(blocked_waits() == (omp_get_num_procs() > 1 ? 0 : kWaits));  // on one CPU libgomp never spins for long
  }
}

TEST_CASE("teams have as many threads while waits block") {
  OpenmpWaits waits;
  waits.set_blocking(true);
  int threads = 0;
#pragma omp parallel num_threads(2) reduction(+ : threads)
  threads += 1;
  CHECK(threads == 2);
}
