// SPDX-License-Identifier: Apache-2.0
//
// A rank that does not come: the others throw when their deadline passes, and go on when it comes late.
#include <chrono>
#include <thread>
#include <vector>

#include "tests/parallel/mpi_fixture.h"

namespace convoy {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE_FIXTURE(MpiFixture, "a late rank is reported within the timeout, and may still come") {
  const auto impatient = test_world().ranks().communicator(0.3, "impatient");
  const Tensor sum = tensors.tensor(std::vector<float>{1, 2}, DType::kF32);
  const auto join = [&] { return impatient->all_reduce(sum, ReduceOp::kSum, "gradient bucket 0"); };
  if (size > 1 && rank == 1) {
    comm->barrier("the others gave up");
    join()->wait();
  } else {
    const Pending pending = join();
    if (size > 1) {
      const auto start = std::chrono::steady_clock::now();
      const std::string text = error_of([&] { pending->wait(); });
      const double waited = seconds_since(start);
      CAPTURE(text);
      CHECK(waited >= 0.29);
      CHECK(waited < 10);
      CHECK(contains(text, "all_reduce 'gradient bucket 0' (collective 1 on communicator 'impatient'"));
      CHECK(contains(text, fmt::format("world rank {} ", rank)));
      CHECK(contains(text, test_world().host()));
      CHECK(contains(text, "waited 0.3 s"));
      CHECK(contains(text, "parallel.timeout"));
      CHECK_FALSE(pending->test());
      comm->barrier("the others gave up");
    }
    for (bool done = false; !done;) {  // a second wait has a deadline of its own, which may also pass
      try {
        pending->wait();
        done = true;
      } catch (const Error&) {
      }
    }
  }
  CHECK(values_of<float>(sum) == std::vector<float>{static_cast<float>(size), static_cast<float>(2 * size)});
  comm->barrier("all have the sum");
}

TEST_CASE_FIXTURE(MpiFixture, "a message that does not come is reported, and may still come") {
  if (size == 1) return;
  const auto impatient = test_world().ranks().communicator(0.2, "impatient");
  const Tensor buffer = tensors.tensor(std::vector<float>{static_cast<float>(rank)}, DType::kF32);
  if (rank == 0) {
    const Pending pending = impatient->receive(buffer, 1, 7, "activation 2");
    CHECK(contains(error_of([&] { pending->wait(); }),
                   "receive from rank 1 'activation 2' (message 1, tag 7 on communicator 'impatient'"));
    comm->barrier("given up");
    while (!pending->test()) std::this_thread::yield();
    CHECK(buffer.data<float>()[0] == 1.0F);
  } else {
    comm->barrier("given up");
    if (rank == 1) {
      const Pending pending = impatient->send(buffer, 0, 7, "activation 2");
      while (!pending->test()) std::this_thread::yield();
    }
  }
  comm->barrier("done");
}

TEST_CASE_FIXTURE(MpiFixture, "the deadline counts from wait(), not from the start") {
  const auto impatient = test_world().ranks().communicator(1.5, "impatient");
  comm->barrier("all start together");
  const Tensor sum = tensors.tensor(std::vector<float>{1}, DType::kF32);
  const Pending pending = impatient->all_reduce(sum, ReduceOp::kSum, "early");
  std::this_thread::sleep_for(std::chrono::milliseconds(1800));
  CHECK_NOTHROW(pending->wait());
  CHECK(sum.data<float>()[0] == static_cast<float>(size));
  comm->barrier("done");
}

}  // namespace convoy
