// SPDX-License-Identifier: Apache-2.0
//
// Sums in the memory that ranks of a node share: exact values, the order of addition, many sums under way beside MPI's.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "parallel/engine/gradient_buckets.h"
#include "tests/parallel/mpi_fixture.h"

namespace convoy {

namespace {

struct SharedFixture : MpiFixture {
  static constexpr std::int64_t kElements = 40'003;
  Tensor memory = comm->reduction_memory(kElements);

  Tensor part(std::int64_t first, std::int64_t count) { return memory.view(first, {count}); }
};

// What makes the order of addition visible: no two of these sums round alike.
float value_of(int rank, std::int64_t i) {
  constexpr float kValues[] = {1e8F, 3.3F, -1e8F, 7.7F};
  return kValues[rank % 4] + static_cast<float>(i % 97);
}

float sum_of(int ranks, std::int64_t i) {
  float sum = value_of(0, i);
  for (int rank = 1; rank < ranks; ++rank) sum += value_of(rank, i);
  return sum;
}

void fill(const Tensor& buffer, std::int64_t first, int rank) {
  for (std::int64_t i = 0; i < buffer.size(); ++i) buffer.data<float>()[i] = value_of(rank, first + i);
}

bool holds_sum(const Tensor& buffer, std::int64_t first, int ranks) {
  for (std::int64_t i = 0; i < buffer.size(); ++i) {
    if (buffer.data<float>()[i] != sum_of(ranks, first + i)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE_FIXTURE(SharedFixture, "one rank needs no memory of its own; several get zeros under no name") {
  CHECK(static_cast<bool>(memory) == (size > 1));
  if (!memory) return;
  CHECK(memory.shape() == Shape{kElements});
  for (std::int64_t i = 0; i < kElements; ++i) REQUIRE(memory.data<float>()[i] == 0.0F);
  CHECK(contains(error_of([&] { comm->reduction_memory(8); }), "has lent its memory already"));
  comm->barrier("all have mapped");
  int mapped = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    CHECK_FALSE(contains(line, "/dev/shm/convoy"));
    mapped += contains(line, "/memfd:convoy") ? 1 : 0;  // never had a name that a kill could leave behind
  }
  CHECK(mapped == size);
}

TEST_CASE_FIXTURE(SharedFixture, "sums of any place and length, in the order of the ranks") {
  if (!memory) return;
  for (const BucketRange& range : std::vector<BucketRange>{
           {0, kElements}, {0, 1}, {17, 20}, {5, 21}, {31, 64}, {1000, 17'384}, {kElements - 1, kElements}}) {
    const std::int64_t first = range.begin, count = range.size();
    fill(part(0, kElements), 0, rank);
    comm->barrier("filled");
    comm->all_reduce(part(first, count), ReduceOp::kSum, "a part")->wait();
    CAPTURE(first);
    CHECK(holds_sum(part(first, count), first, size));
    if (first > 0) CHECK(memory.data<float>()[first - 1] == value_of(rank, first - 1));
    if (first + count < kElements) {
      CHECK(memory.data<float>()[first + count] == value_of(rank, first + count));
    }
    comm->barrier("checked");
  }
}

TEST_CASE_FIXTURE(SharedFixture, "many sums under way beside those of MPI, waited for in any order") {
  if (!memory) return;
  const Tensor elsewhere = tensors.tensor({100}, DType::kF32);
  for (int step = 0; step < 50; ++step) {
    fill(part(0, kElements), 0, rank);
    fill(elsewhere, 0, rank);
    std::vector<Pending> sums;
    for (std::int64_t i = 0; i < 4; ++i) {
      sums.push_back(comm->all_reduce(part(i * 10'000, 10'000), ReduceOp::kSum, "quarter"));
    }
    Pending other = comm->all_reduce(elsewhere, ReduceOp::kMax, "elsewhere");
    if ((step + rank) % 2 == 0) other->wait();  // ranks differ in what they wait for first
    while (!sums.empty()) {
      sums.back()->wait();
      sums.pop_back();
    }
    other->wait();
    REQUIRE(holds_sum(part(0, 40'000), 0, size));
    REQUIRE(elsewhere.data<float>()[3] == 1e8F + 3);
  }
}

TEST_CASE_FIXTURE(SharedFixture, "maxima, and buffers elsewhere, go their own way") {
  if (!memory) return;
  fill(part(0, 100), 0, rank);
  comm->all_reduce(part(0, 100), ReduceOp::kMax, "maximum")->wait();
  CHECK(memory.data<float>()[5] == 1e8F + 5);
  const Tensor elsewhere = tensors.tensor({100}, DType::kF32);
  for (std::int64_t i = 0; i < 100; ++i) elsewhere.data<float>()[i] = 1;
  comm->all_reduce(elsewhere, ReduceOp::kSum, "elsewhere")->wait();
  CHECK(elsewhere.data<float>()[99] == static_cast<float>(size));
}

TEST_CASE_FIXTURE(SharedFixture, "gradient buckets in shared memory, over many steps") {
  if (!memory) return;
  GradientBuckets buckets(comm.get(), memory, 0.003, 0.03);
  for (int step = 0; step < 20; ++step) {
    buckets.begin_step();
    for (std::int64_t first = 0; first < kElements; first += 1000) {
      const std::int64_t count = std::min<std::int64_t>(1000, kElements - first);
      fill(part(first, count), first + step, rank);
      buckets.ready_up_to(first + count);
    }
    buckets.finish();
    REQUIRE(holds_sum(memory, step, size));
  }
}

}  // namespace convoy
