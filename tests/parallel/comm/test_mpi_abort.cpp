// SPDX-License-Identifier: Apache-2.0
//
// A job that must end at once, as the program's main ends it: rank 0 fails while operations are under way
// whose deadline is far off ("throws"), or waits in vain for a rank that hangs ("hangs"). Prints "aborted in
// time" when the error reached main without waiting for those operations, whose memory is by then reused.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "layers/base/error.h"
#include "parallel/world/world.h"
#include "tests/parallel/test_tensors.h"

namespace {

using namespace convoy;

void work(const World& world, bool hangs) {
  TestTensors tensors;
  const auto comm = world.ranks().communicator(hangs ? 0.5 : 600, "replicas");
  if (world.rank() == 1) {
    if (hangs) std::this_thread::sleep_for(std::chrono::seconds(50));
    const Tensor nothing = tensors.tensor({1}, DType::kF32);
    comm->receive(nothing, 0, 1, "what rank 0 never sends")->wait();
    return;
  }
  std::vector<Tensor> buckets;
  std::vector<Pending> pending;
  for (int i = 0; i < 5; ++i) {
    buckets.push_back(tensors.tensor({100'000}, DType::kF32));
    pending.push_back(comm->all_reduce(buckets.back(), ReduceOp::kSum, "bucket"));
  }
  pending.push_back(comm->receive(buckets.front(), 1, 0, "never sent"));
  if (hangs) comm->barrier("rank 1 hangs");
  fail("rank 0 throws");
}

}  // namespace

int main(int argc, char** argv) {
  const bool hangs = argc > 1 && std::string(argv[1]) == "hangs";
  World world;
  const auto start = std::chrono::steady_clock::now();
  try {
    work(world, hangs);
  } catch (const Error& error) {
    // Under "hangs" rank 1 never gets here, under "throws" it waits until it is killed.
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "%s\n%s after %.2f s\n", error.what(),
                 world.rank() == 0 && passed.count() < 10 ? "aborted in time" : "too late, or on the wrong rank,",
                 passed.count());
    world.abort(static_cast<int>(error.code()));
  }
}
