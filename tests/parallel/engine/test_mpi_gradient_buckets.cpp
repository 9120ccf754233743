// SPDX-License-Identifier: Apache-2.0
//
// Buckets against the serial sum: whatever the sizes in which backward reports its progress, every gradient
// is summed exactly once.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "parallel/engine/gradient_buckets.h"
#include "tests/parallel/mpi_fixture.h"

namespace convoy {

namespace {

void fill(const Tensor& gradients, int rank, int step, std::int64_t from = 0) {
  for (std::int64_t i = from; i < gradients.size(); ++i) {
    gradients.data<float>()[i] = static_cast<float>(sample_value(rank + step, i));
  }
}

bool holds_sum(const Tensor& gradients, int size, int step) {
  for (std::int64_t i = 0; i < gradients.size(); ++i) {
    int sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += sample_value(rank + step, i);
    if (gradients.data<float>()[i] != static_cast<float>(sum)) return false;
  }
  return true;
}

double mib(std::int64_t elements) { return static_cast<double>(elements) * sizeof(float) / (1 << 20); }

}  // namespace

TEST_CASE_FIXTURE(MpiFixture, "buckets sum what becomes ready in steps of any size, over many steps") {
  constexpr std::int64_t kElements = 20'011;
  const Tensor gradients = tensors.tensor({kElements}, DType::kF32);
  GradientBuckets buckets(comm.get(), gradients, mib(64), mib(3000));
  CHECK(buckets.buckets().size() == 8);
  std::mt19937 random(static_cast<unsigned>(7 * rank));  // every rank reports in other steps
  for (int step = 0; step < 20; ++step) {
    buckets.begin_step();
    for (std::int64_t ready = 0; ready < kElements;) {
      const std::int64_t next = std::min<std::int64_t>(kElements, ready + 1 + random() % 5000);
      // Only now is this stretch written, as backward does: a bucket that started early would be wrong.
      for (std::int64_t i = ready; i < next; ++i) {
        gradients.data<float>()[i] = static_cast<float>(sample_value(rank + step, i));
      }
      ready = next;
      buckets.ready_up_to(ready);
      if (random() % 2 == 0) buckets.ready_up_to(ready / 2);  // what is known already changes nothing
      buckets.progress();
    }
    buckets.finish();
    CHECK(holds_sum(gradients, size, step));
  }
}

TEST_CASE_FIXTURE(MpiFixture, "buckets start as soon as they are complete, not before") {
  const Tensor gradients = tensors.tensor({100}, DType::kF32);
  GradientBuckets buckets(comm.get(), gradients, mib(10), mib(40));
  REQUIRE(buckets.buckets().size() == 4);
  fill(gradients, rank, 0);
  const auto started = [&](std::size_t count) { return size == 1 ? 0 : count; };
  buckets.begin_step();
  buckets.ready_up_to(0);
  CHECK(buckets.started() == 0);
  buckets.ready_up_to(9);
  CHECK(buckets.started() == 0);
  buckets.ready_up_to(10);
  CHECK(buckets.started() == started(1));
  buckets.ready_up_to(89);
  CHECK(buckets.started() == started(2));
  buckets.ready_up_to(90);
  CHECK(buckets.started() == started(3));
  buckets.finish();
  CHECK(buckets.started() == started(4));
  CHECK(holds_sum(gradients, size, 0));
}

TEST_CASE_FIXTURE(MpiFixture, "finish() alone reduces everything") {
  const Tensor gradients = tensors.tensor({777}, DType::kF32);
  GradientBuckets buckets(comm.get(), gradients, 1e-9, mib(100));  // the first bucket has one element
  CHECK(buckets.buckets().front() == BucketRange{0, 1});
  for (int step = 0; step < 3; ++step) {
    fill(gradients, rank, step);
    buckets.begin_step();
    buckets.finish();
    CHECK(holds_sum(gradients, size, step));
  }
}

TEST_CASE_FIXTURE(MpiFixture, "buckets of a sharded optimizer are summed on the replica that updates them") {
  constexpr std::int64_t kElements = 5000;
  const Tensor gradients = tensors.tensor({kElements}, DType::kF32);
  std::vector<std::int64_t> bounds{0};  // the second shard is empty, the last has the rest
  for (int shard = 1; shard < size; ++shard) bounds.push_back(shard <= 2 ? 1600 : 1600 + 480 * shard);
  bounds.push_back(kElements);
  GradientBuckets buckets(comm.get(), gradients, mib(64), mib(1000), bounds);
  std::int64_t end = 0;
  for (const BucketRange& bucket : buckets.buckets()) {
    CHECK(bucket.begin == end);
    end = bucket.end;
    const auto inside = [&](std::int64_t bound) { return bucket.begin < bound && bound < bucket.end; };
    CHECK((size == 1 || std::none_of(bounds.begin(), bounds.end(), inside)));
  }
  CHECK(end == kElements);
  const std::int64_t first = bounds[static_cast<std::size_t>(rank)], last = bounds[static_cast<std::size_t>(rank) + 1];
  for (int step = 0; step < 3; ++step) {
    fill(gradients, rank, step);
    buckets.begin_step();
    buckets.ready_up_to(kElements / 2);
    buckets.finish();
    for (std::int64_t i = first; i < last; ++i) {
      int sum = 0;
      for (int other = 0; other < size; ++other) sum += sample_value(other + step, i);
      REQUIRE(gradients.data<float>()[i] == static_cast<float>(sum));
    }
  }
}

TEST_CASE_FIXTURE(MpiFixture, "other collectives may pass between the buckets, as synchronised batch norm's do") {
  const Tensor gradients = tensors.tensor({5000}, DType::kF32);
  GradientBuckets buckets(comm.get(), gradients, mib(1000), mib(1000));
  fill(gradients, rank, 0);
  buckets.begin_step();
  for (std::int64_t ready = 500; ready <= 5000; ready += 500) {
    std::vector<double> sums = {1.0, static_cast<double>(rank)};
    comm->all_reduce(sums, ReduceOp::kSum, "statistics");
    CHECK(sums == std::vector<double>{static_cast<double>(size), size * (size - 1) / 2.0});
    buckets.ready_up_to(ready);
  }
  buckets.finish();
  CHECK(holds_sum(gradients, size, 0));
}

}  // namespace convoy
