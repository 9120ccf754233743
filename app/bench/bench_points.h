// SPDX-License-Identifier: Apache-2.0
//
// What convoy bench times: every combination of its cases and sweeps.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace convoy {

/// One --sweep KEY=V1,V2,...: the values as written, each to be joined to "KEY=VALUE" as an override.
struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

/// One thing to time.
struct BenchPoint {
  std::string words;                   ///< the case as it was given, and "KEY=VALUE" of each sweep
  std::vector<std::string> overrides;  ///< "KEY=VALUE"
  std::size_t of_case = 0;             ///< the first so many overrides are the case's, the others of sweeps
  int ranks = 0;                       ///< the first so many; 0: all
  bool independent = false;            ///< each of them trains alone, all at the same time
};

/// Throws a usage Error for a case that is none, or that wants more ranks than `world_ranks`.
[[nodiscard]] std::vector<BenchPoint> bench_points(const std::vector<std::string>& cases,
                                                   const std::vector<Sweep>& sweeps, int world_ranks);

}  // namespace convoy
