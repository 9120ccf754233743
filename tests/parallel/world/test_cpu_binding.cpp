// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/world/cpu_binding.h"

#include <doctest/doctest.h>

namespace convoy {

namespace {

CpuMask mask_of(const std::vector<int>& cpus) {
  CpuMask mask;
  for (const int cpu : cpus) mask.add(cpu);
  return mask;
}

CpuLimits limits_of(const std::vector<int>& cpus, double quota = 0, std::uint64_t group = 0) {
  return {mask_of(cpus), {quota, group}};
}

// self: the rank whose binding it is.
CpuBinding share_cpus(const std::vector<CpuLimits>& node_limits, std::size_t self, int node_cpus) {
  std::vector<CpuLimitsDigest> digests;
  for (const CpuLimits& limits : node_limits) digests.push_back(digest_of(limits));
  return share_cpus(node_limits[self], digests, node_cpus);
}

}  // namespace

TEST_CASE("masks count and print") {
  CHECK(mask_of({}).str().empty());
  CHECK(mask_of({5}).str() == "5");
  CHECK(mask_of({0, 1, 2, 3, 8}).str() == "0-3,8");
  CHECK(mask_of({62, 63, 64, 65, 8191}).str() == "62-65,8191");
  CHECK(mask_of({62, 63, 64, 65, 8191}).count() == 5);
  CHECK(mask_of({3}).has(3));
  CHECK_FALSE(mask_of({3}).has(67));
}

TEST_CASE("ranks with the same mask share it, others do not") {
  const CpuLimits all = limits_of({0, 1, 2, 3, 4, 5, 6, 7});
  const CpuLimits half = limits_of({0, 1, 2, 3});
  CHECK(share_cpus({all}, 0, 8).threads == 8);
  CHECK(share_cpus({all, all}, 1, 8).threads == 4);
  CHECK(share_cpus({all, all, all}, 2, 8).threads == 2);
  CHECK(share_cpus({half, limits_of({4, 5, 6, 7})}, 1, 8).threads == 4);
  CHECK(share_cpus({all, half, half}, 0, 8).threads == 8);
  CHECK(share_cpus({all, half, half}, 1, 8).threads == 2);
}

TEST_CASE("a share is at least one thread, and the report says when ranks crowd") {
  const CpuLimits one = limits_of({2});
  const CpuBinding binding = share_cpus({one, one, one}, 0, 4);
  CHECK(binding.threads == 1);
  CHECK(binding.report ==
        "may use 1 of 4 CPUs (2), together with 2 other ranks of its node: 1 thread; 3 ranks crowd on these CPUs");
  CHECK(share_cpus({limits_of({0, 1})}, 0, 2).report == "may use 2 of 2 CPUs (0-1), alone: 2 threads");
}

TEST_CASE("a control group's quota is shared by the ranks in it, and rounded down") {
  const std::vector<int> eight{0, 1, 2, 3, 4, 5, 6, 7};
  const auto threads = [&](const std::vector<CpuLimits>& ranks) { return share_cpus(ranks, 0, 8).threads; };
  CHECK(threads({limits_of(eight, 2.5, 7)}) == 2);
  CHECK(threads({limits_of(eight, 0.5, 7)}) == 1);
  CHECK(threads({limits_of(eight, 16, 7)}) == 8);
  CHECK(threads({limits_of(eight, 4, 7), limits_of(eight, 4, 7)}) == 2);
  CHECK(threads({limits_of(eight, 4, 7), limits_of(eight, 4, 9)}) == 4);  // a container each, which share the CPUs
  CHECK(threads({limits_of(eight, 3, 7), limits_of(eight, 3, 9)}) == 3);
  CHECK(threads({limits_of({0, 1, 2, 3}, 4, 7), limits_of({4, 5, 6, 7}, 4, 7)}) == 2);
  CHECK(share_cpus({limits_of(eight, 2.5, 7)}, 0, 8).report ==
        "may use 8 of 8 CPUs (0-7), alone, the time of 2.5 (limit of a control group): 2 threads");
  CHECK(share_cpus({limits_of({0}, 2, 7), limits_of({1}, 2, 7)}, 1, 2).report ==
        "may use 1 of 2 CPUs (1), alone, the time of 2 (limit of a control group of 2 ranks): 1 thread");
}

TEST_CASE("NUMA nodes of a mask") {
  CHECK(describe_numa(mask_of({0, 5}), {"0-3,8-11\n", "4-7,12-15\n"}) == "NUMA nodes 0-1 of 2");
  CHECK(describe_numa(mask_of({9}), {"0-3,8-11\n", "4-7,12-15\n"}) == "NUMA node 0 of 2");
  CHECK(describe_numa(mask_of({12}), {"0-3,8-11\n", "4-7,12-15\n", "\n"}) == "NUMA node 1 of 3");
  CHECK(describe_numa(mask_of({0}), {"0-3\n"}).empty());
  CHECK(describe_numa(mask_of({0}), {}).empty());
}

TEST_CASE("this process may run somewhere") { CHECK(current_cpu_mask().count() >= 1); }

}  // namespace convoy
