// SPDX-License-Identifier: Apache-2.0
#include "parallel/world/cpu_binding.h"

#include <doctest/doctest.h>

namespace convoy {

namespace {

CpuMask mask_of(const std::vector<int>& cpus) {
  CpuMask mask;
  for (const int cpu : cpus) mask.add(cpu);
  return mask;
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
  const CpuMask all = mask_of({0, 1, 2, 3, 4, 5, 6, 7});
  const CpuMask half = mask_of({0, 1, 2, 3});
  CHECK(share_cpus({all}, 0, 8).threads == 8);
  CHECK(share_cpus({all, all}, 1, 8).threads == 4);
  CHECK(share_cpus({all, all, all}, 2, 8).threads == 2);
  CHECK(share_cpus({half, mask_of({4, 5, 6, 7})}, 1, 8).threads == 4);
  CHECK(share_cpus({all, half, half}, 0, 8).threads == 8);
  CHECK(share_cpus({all, half, half}, 1, 8).threads == 2);
}

TEST_CASE("a share is at least one thread, and the report says when ranks crowd") {
  const CpuMask one = mask_of({2});
  const CpuBinding binding = share_cpus({one, one, one}, 0, 4);
  CHECK(binding.threads == 1);
  CHECK(binding.report ==
        "may use 1 of 4 CPUs (2), together with 2 other ranks of its node: 1 thread; 3 ranks crowd on these CPUs");
  CHECK(share_cpus({mask_of({0, 1})}, 0, 2).report == "may use 2 of 2 CPUs (0-1), alone: 2 threads");
}

TEST_CASE("this process may run somewhere") { CHECK(current_cpu_mask().count() >= 1); }

}  // namespace convoy
