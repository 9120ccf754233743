// SPDX-License-Identifier: Apache-2.0
//
// A job whose last rank misbehaves in the way that the first argument says, while the others wait for it with a short
// deadline. Ends as the program's main does: the error of a rank is printed, and ends the job. mpi_hang_test.py starts
// it and judges what it says.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "layers/base/error.h"
#include "mpi.h"
#include "parallel/watchdog/activity.h"
#include "parallel/watchdog/watchdog.h"
#include "parallel/world/world.h"
#include "tests/parallel/test_tensors.h"

namespace {

using namespace convoy;

constexpr double kDeadline = 1;
constexpr std::chrono::seconds kForever{90};

void stop_for_ever() {
  raise(SIGSTOP);
  std::this_thread::sleep_for(kForever);  // launchers wake what they end
}

void misbehave(const World& world, const std::string& how, Communicator& late, Communicator& other) {
  if (how == "sleeps") {
    note_activity("reading data");
    std::this_thread::sleep_for(kForever);
  } else if (how == "spins") {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < kForever) {
    }
  } else if (how == "stops") {
    stop_for_ever();
  } else if (how == "order") {
    other.barrier("another order");  // answers while it waits
  } else if (how == "less") {
    TestTensors tensors;
    late.send(tensors.tensor({1}, DType::kF32), 0, 1, "the only one")->wait();
    other.barrier("sent all");
  }
  std::fprintf(stderr, "rank %d came after all\n", world.rank());
}

void work(const World& world, const std::string& how) {
  const auto late = world.ranks().communicator(kDeadline, "replicas");
  if (how == "absent" && world.rank() == world.size() - 1) std::this_thread::sleep_for(kForever);
  const auto other = world.ranks().communicator(20, "other");
  late->barrier("all are here");
  if (world.rank() == world.size() - 1) {
    misbehave(world, how, *late, *other);
    return;
  }
  TestTensors tensors;
  const Tensor one = tensors.tensor({1}, DType::kF32);
  if (how != "less") {
    late->all_reduce(one, ReduceOp::kSum, "gradient bucket 3")->wait();
  } else if (world.rank() == 0) {
    late->receive(one, world.size() - 1, 1, "the first")->wait();
    late->receive(one, world.size() - 1, 1, "the second")->wait();
  } else {
    other->barrier("sent all");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const bool apart = argc > 2 && std::string(argv[2]) == "apart";
  alarm(100);  // nothing is left when all else fails
  const bool at_start = how == "start";
  const char* ranks = std::getenv("HANG_RANKS");
  if (at_start && ranks != nullptr && World::launch_rank() == std::atoi(ranks) - 1) stop_for_ever();
  World world;
  if (at_start) return 0;  // MPI did not wait for the stopped rank
  if (how == "end") {
    world.set_timeout(kDeadline);
    if (world.rank() == world.size() - 1) stop_for_ever();
    return 0;
  }
  try {
    // Each rank as if alone on its node: what others know of it comes in messages.
    const auto watch = apart ? std::make_unique<Watchdog>(MPI_COMM_SELF, fmt::format("node{}", world.rank())) : nullptr;
    try {
      work(world, how);
    } catch (const Error& error) {
      std::fprintf(stderr, "convoy: error: %s (rank %d on %s)\n", error.what(), world.rank(), world.host().c_str());
      world.abort(static_cast<int>(error.code()));
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "convoy: error: %s\n", error.what());
    world.abort(3);
  }
}
