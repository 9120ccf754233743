// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/mesh.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <string>

#include "layers/base/error.h"

namespace convoy {

TEST_CASE("a mesh gives every rank one place") {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    for (int stages = 1; stages <= ranks; ++stages) {
      if (ranks % stages != 0) continue;
      const Mesh mesh(ranks, stages);
      CHECK(mesh.ranks() == ranks);
      std::set<int> seen;
      for (int replica = 0; replica < mesh.replicas(); ++replica) {
        for (int stage = 0; stage < mesh.stages(); ++stage) {
          const int world_rank = mesh.world_rank(replica, stage);
          CHECK(mesh.replica(world_rank) == replica);
          CHECK(mesh.stage(world_rank) == stage);
          seen.insert(world_rank);
        }
      }
      CHECK(seen.size() == static_cast<std::size_t>(ranks));
      CHECK(*seen.rbegin() == ranks - 1);
    }
  }
}

TEST_CASE("the stages of a replica are neighbours") {
  const Mesh mesh(6, 3);
  CHECK(mesh.replicas() == 2);
  CHECK(mesh.stages() == 3);
  CHECK(Mesh() == Mesh(1, 1));
  CHECK(mesh.world_rank(1, 0) == 3);
  CHECK(mesh.world_rank(1, 2) == 5);
}

TEST_CASE("a mesh that does not divide names what would") {
  const auto message = [](int ranks, int stages) -> std::string {
    try {
      (void)Mesh(ranks, stages);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kUsage);
      return error.what();
    }
    return "no error";
  };
  CHECK(
      message(6, 4) ==
      "parallel.stages: 6 ranks cannot be cut into replicas of 4 stages (start 4 or 8 ranks, or set stages to 1, 2, 3, "
      "6)");
  CHECK(message(2, 3) ==
        "parallel.stages: 2 ranks cannot be cut into replicas of 3 stages (start 3 ranks, or set stages to 1, 2)");
  CHECK(message(4, 0).find("at least 1") != std::string::npos);
  CHECK(message(4, -2).find("parallel.stages: -2") != std::string::npos);
  CHECK_THROWS_AS((void)Mesh(0, 1), Error);
}

}  // namespace convoy
