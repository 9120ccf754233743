// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/mesh.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "layers/base/error.h"
#include "layers/base/option_error.h"

namespace convoy {

namespace {

std::vector<int> divisors(int number) {
  std::vector<int> result;
  for (int i = 1; i <= number; ++i) {
    if (number % i == 0) result.push_back(i);
  }
  return result;
}

}  // namespace

Mesh::Mesh(int ranks, int stages) {
  if (ranks < 1) fail("a mesh of {} ranks cannot be", ranks);
  if (stages < 1) fail_option("parallel.stages", "{} is not a number of stages (it must be at least 1)", stages);
  if (ranks % stages != 0) {
    const int below = ranks / stages * stages;
    const std::string better = below == 0 ? fmt::format("{}", stages) : fmt::format("{} or {}", below, below + stages);
    fail_option("parallel.stages",
                "{} ranks cannot be cut into replicas of {} stages (start {} ranks, or set stages to {})", ranks,
                stages, better, fmt::join(divisors(ranks), ", "));
  }
  replicas_ = ranks / stages;
  stages_ = stages;
}

}  // namespace convoy
