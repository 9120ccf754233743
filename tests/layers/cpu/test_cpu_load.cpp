// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "layers/cpu/cpu_load.h"

#include <doctest/doctest.h>

using namespace convoy;

namespace {

// user nice system idle iowait irq softirq steal guest guest_nice, 100 a second
constexpr const char* kStat =
    "cpu  700 20 130 2500 40 10 20 900 0 0\n"
    "cpu0 400 20 30 1000 40 10 0 500 7 0\n"
    "cpu1 300 0 100 1500 0 0 20 400 0 0\n"
    "cpu10 1 1 1 1 1 1 1 1 1 1\n"
    "intr 123 456\nctxt 99\n";

bool all(int /*cpu*/) { return true; }

}  // namespace

TEST_CASE("busy and total seconds of chosen CPUs; neither waiting for disks nor steal time is work") {
  const auto first = parse_cpu_times(
      kStat, [](int cpu) { return cpu == 0; }, 100);
  REQUIRE(first);
  CHECK(first->busy == doctest::Approx(4.6));    // 400 + 20 + 30 + 10
  CHECK(first->total == doctest::Approx(15.0));  // and 1000 + 40
  const auto both = parse_cpu_times(
      kStat, [](int cpu) { return cpu < 2; }, 100);
  CHECK(both->busy == doctest::Approx(8.8));
  CHECK(both->total == doctest::Approx(34.2));
  CHECK(!parse_cpu_times(
      kStat, [](int cpu) { return cpu == 1 + 1; }, 100));
}

TEST_CASE("counters that are missing or cut short are unknown") {
  for (const char* text :
       {"", "cpu", "cpu 1 2 3", "cpu0", "cpu0 1 2 3", "cpux 1 2 3 4 5 6 7 8", "cpu0 a b c d e f g"}) {
    CAPTURE(text);
    CHECK(!parse_cpu_times(text, all, 100));
  }
}

TEST_CASE("the share of others is what the job did not do itself") {
  const CpuTimes before{10, 100}, after{16, 108};  // 6 of 8 seconds were work
  CHECK(others_share(before, after, 0) == doctest::Approx(0.75));
  CHECK(others_share(before, after, 4) == doctest::Approx(0.25));
  CHECK(others_share(before, after, 6.5) == doctest::Approx(0));  // counters tick every 10 ms
  CHECK(!others_share(before, before, 0));
  CHECK(!others_share(std::nullopt, after, 0));
  CHECK(!others_share(before, std::nullopt, 0));
}

TEST_CASE("the line for people") {
  CHECK(describe_cpus(4, 0, 0.372) == "4 CPUs, 37 % busy with other work");
  CHECK(describe_cpus(1, 0, std::nullopt) == "1 CPU");
  CHECK(describe_cpus(8, 2.5, 0) == "8 CPUs (a control group allows the time of 2.5), 0 % busy with other work");
}

TEST_CASE("this machine counts, and this process takes time") {
  const CpuReading before = read_cpus(all);
  REQUIRE(before.cpus);
  CHECK(before.cpus->busy > 0);
  CHECK(before.cpus->total > before.cpus->busy);
  while (own_cpu_seconds() <= before.own) {
  }
  CHECK(!read_cpus([](int) { return false; }).cpus);
}
