// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/nccl/nccl_pairs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

using namespace convoy;

namespace {

using Pairs = std::vector<std::pair<int, int>>;

// How many meetings one after the other it takes when each rank goes through its own in this order.
int rounds(const Pairs& pairs, int size) {
  std::vector<int> busy(static_cast<std::size_t>(size), 0);
  for (const auto& [a, b] : pairs) {
    int& first = busy[static_cast<std::size_t>(a)];
    int& second = busy[static_cast<std::size_t>(b)];
    first = second = std::max(first, second) + 1;
  }
  return busy.empty() ? 0 : *std::max_element(busy.begin(), busy.end());
}

}  // namespace

TEST_CASE("neighbours on a ring meet once each") {
  CHECK(ring_pairs(1).empty());
  CHECK(ring_pairs(2) == Pairs{{0, 1}});
  CHECK(ring_pairs(3) == Pairs{{0, 1}, {2, 0}, {1, 2}});
  CHECK(ring_pairs(4) == Pairs{{0, 1}, {2, 3}, {1, 2}, {3, 0}});
  for (int size = 3; size < 20; ++size) {
    const Pairs pairs = ring_pairs(size);
    CHECK(pairs.size() == static_cast<std::size_t>(size));
    std::set<int> first;
    for (const auto& [a, b] : pairs) {
      CHECK(b == (a + 1) % size);
      first.insert(a);
    }
    CHECK(first.size() == pairs.size());
    CHECK(rounds(pairs, size) <= 3);
  }
}
