// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "parallel/base/mpi_check.h"
#include "tests/parallel/mpi_fixture.h"

namespace convoy {

TEST_CASE("a rank knows its place in the world and on its node") {
  const World& world = test_world();
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(world.size() == size);
  if (const char* launched = std::getenv("OMPI_COMM_WORLD_SIZE")) CHECK(world.size() == std::atoi(launched));
  // Tests run on one machine; Open MPI's own count of the node's ranks is the reference.
  if (const char* local = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK")) CHECK(world.local_rank() == std::atoi(local));
  if (const char* local = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE")) CHECK(world.local_size() == std::atoi(local));
  CHECK(world.node_count() == 1);
  CHECK_FALSE(world.host().empty());
  CHECK(World::mpi_library().version != "unknown MPI");
  CHECK(World::launch_rank() == world.rank());
}

TEST_CASE("threads are shared fairly") {
  const World& world = test_world();
  CHECK(world.thread_share() >= 1);
  CHECK(contains(world.binding(), "CPUs"));
  // Unbound, all ranks have the same mask, so together they do not start more threads than there are CPUs.
  const int cpus = current_cpu_mask().count();
  CHECK(world.thread_share() <= std::max(1, cpus));
}

TEST_CASE("a process has one World") {
  CHECK(contains(error_of([] { World second; }), "started twice"));
}

TEST_CASE_FIXTURE(MpiFixture, "split makes a communicator for each color, ordered by key") {
  const World& world = test_world();
  const auto half = world.ranks().split(rank % 2, -rank, kTestTimeout, "half");
  REQUIRE(half != nullptr);
  CHECK(half->size() == (size + 1 - rank % 2) / 2);
  const auto members = half->all_gather(fmt::format("{}", rank), "members");
  CHECK(members[static_cast<std::size_t>(half->rank())] == fmt::format("{}", rank));
  for (std::size_t i = 1; i < members.size(); ++i) CHECK(std::stoi(members[i - 1]) > std::stoi(members[i]));
  // Groups do not mix: the sum is that of the own color.
  const Tensor sum = tensors.tensor(std::vector<float>{static_cast<float>(rank)}, DType::kF32);
  half->all_reduce(sum, ReduceOp::kSum, "own color")->wait();
  float expected = 0;
  for (int r = rank % 2; r < size; r += 2) expected += static_cast<float>(r);
  CHECK(sum.data<float>()[0] == expected);

  const auto some = world.ranks().split(rank == 0 ? 0 : -1, 0, kTestTimeout, "rank 0 alone");
  CHECK((some != nullptr) == (rank == 0));
}

TEST_CASE("a failing MPI call becomes an Error with call, rank, host and place") {
  const std::string text =
      error_of([] { CONVOY_MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_NULL, MPI_ERRORS_RETURN)); });
  CAPTURE(text);
  CHECK(contains(text, "MPI_Comm_set_errhandler(MPI_COMM_NULL, MPI_ERRORS_RETURN)"));
  CHECK(contains(text, fmt::format("rank {} (", test_world().rank())));
  CHECK(contains(text, " at tests/parallel/world/test_mpi_world.cpp:"));
  CHECK(contains(text, "nvalid communicator"));  // Open MPI: "MPI_ERR_COMM: invalid ...", MPICH: "Invalid ..."
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("a timeout must be above 0") {
  CHECK(contains(error_of([] { (void)test_world().ranks().communicator(0); }), "parallel.timeout"));
}

TEST_CASE("the first ranks as a group of their own") {
  const RankGroup all = test_world().ranks();
  for (int ranks = 1; ranks <= all.size(); ++ranks) {
    const RankGroup some = all.first(ranks);
    CHECK(some.size() == (all.rank() < ranks ? ranks : 0));
    if (some.size() == 0) continue;
    CHECK(some.rank() == all.rank());
    const auto comm = some.communicator(kTestTimeout, "some");
    double sum = 1;
    comm->all_reduce(std::span<double>(&sum, 1), ReduceOp::kSum, "ones");
    CHECK(sum == ranks);
    const auto alone = some.split(some.rank(), 0, kTestTimeout, "alone");
    CHECK(alone->size() == 1);
  }
}

}  // namespace convoy
