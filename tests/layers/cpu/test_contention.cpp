// SPDX-License-Identifier: Apache-2.0
#include "layers/cpu/contention.h"

#include <doctest/doctest.h>

#include "layers/cpu/contention_monitor.h"

using namespace convoy;

namespace {

// How many windows of this share it takes until the detector says `contended`, at most 1000.
int windows_until(ContentionDetector& detector, bool contended, double share) {
  for (int i = 1; i <= 1000; ++i) {
    if (detector.add(share) == contended) return i;
  }
  return -1;
}

}  // namespace

TEST_CASE("schedstat: run time, run-queue wait, number of slices") {
  CHECK(parse_run_queue_wait("753914 2500000000 3\n") == doctest::Approx(2.5));
  CHECK(parse_run_queue_wait("0 0 0") == doctest::Approx(0));
  for (const char* text : {"", "12", "a b c", "12 x 3"}) CHECK(!parse_run_queue_wait(text));
}

TEST_CASE("the thread that waits most counts; threads of one reading alone do not") {
  const ThreadWaits before{{10, 1.0}, {11, 5.0}, {12, 2.0}};
  const ThreadWaits after{{10, 1.01}, {11, 5.04}, {13, 9.0}};
  CHECK(largest_wait_share(before, after, 0.1) == doctest::Approx(0.4));
  CHECK(largest_wait_share({}, after, 0.1) == 0);
  CHECK(largest_wait_share(before, after, 0) == 0);
}

TEST_CASE("without schedstat an involuntary switch counts as a time slice") {
  CHECK(wait_share_of_switches(0, 0.1) == 0);
  CHECK(wait_share_of_switches(1, 0.1) < ContentionDetector::kBegins);
  CHECK(wait_share_of_switches(20, 0.1) > ContentionDetector::kBegins);  // two threads on a CPU: half the time
}

TEST_CASE("contention begins after two windows and ends when the mean is low") {
  ContentionDetector detector;
  CHECK_FALSE(detector.contended());
  CHECK(windows_until(detector, true, 0.5) == 2);
  CHECK(windows_until(detector, false, 0) == 16);  // 0.5 * 0.9^16 < 0.1 < 0.5 * 0.9^15
  CHECK(windows_until(detector, true, 0.9) == 2);
  CHECK(windows_until(detector, false, 0) == 21);
  CHECK(windows_until(detector, true, 7) == 2);  // counts as 1
  CHECK(windows_until(detector, false, 0) == 22);
}

TEST_CASE("single windows change nothing, nor do shares between the thresholds") {
  ContentionDetector detector;
  for (int i = 0; i < 50; ++i) {
    CHECK_FALSE(detector.add(0.9));
    CHECK_FALSE(detector.add(0.15));
  }
  CHECK_FALSE(detector.add(0.9));
  CHECK(detector.add(0.9));
  CHECK(windows_until(detector, false, 0.15) == -1);
  for (int i = 0; i < 100; ++i) CHECK(detector.add(i % 4 == 0 ? 0.6 : 0.0));  // 0.15 on average
}

TEST_CASE("the monitor: passive waits block for as long as it lives, active ones never") {
  CHECK_FALSE(cpus_contended());
  {
    ContentionMonitor monitor(WaitPolicy::kPassive);
    CHECK(cpus_contended());
    CHECK_FALSE(monitor.take_first_contention());  // nobody competes
  }
  CHECK_FALSE(cpus_contended());
  {
    const ContentionMonitor monitor(WaitPolicy::kActive);
    CHECK_FALSE(cpus_contended());
  }
  {
    const ContentionMonitor monitor(WaitPolicy::kAuto);  // ends although it samples
  }
  CHECK_FALSE(cpus_contended());
}
