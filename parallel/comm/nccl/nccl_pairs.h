// SPDX-License-Identifier: Apache-2.0
//
// Pairs of neighbours on a ring of ranks, in the order in which NCCL communicators of two are made. Pure.
#pragma once

#include <utility>
#include <vector>

namespace convoy {

/// Every rank and the next one, the last and the first, once each. Ranks that meet their partners one after the other
/// in this order never wait in a cycle, because all ranks have the same order; pairs that begin at even ranks come
/// first, so that most of them meet at the same time.
[[nodiscard]] inline std::vector<std::pair<int, int>> ring_pairs(int size) {
  std::vector<std::pair<int, int>> pairs;
  const int count = size > 2 ? size : size - 1;
  for (int first : {0, 1}) {
    for (int rank = first; rank < count; rank += 2) pairs.emplace_back(rank, (rank + 1) % size);
  }
  return pairs;
}

}  // namespace convoy
