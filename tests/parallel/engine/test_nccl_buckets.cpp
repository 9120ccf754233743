// SPDX-License-Identifier: Apache-2.0
//
// Gradient buckets over NCCL: every gradient is summed once, though the GPU writes it just before its bucket starts and
// changes it right after the last.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "parallel/engine/gradient_buckets.h"
#include "tests/parallel/comm/nccl/nccl_fixture.h"

namespace convoy {

namespace {

constexpr std::int64_t kElements = 5'003;

double mib(std::int64_t elements) { return static_cast<double>(elements) * sizeof(float) / (1 << 20); }

std::vector<float> values(int rank, int step) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < kElements; ++i) all.push_back(static_cast<float>(sample_value(rank + step, i)));
  return all;
}

std::vector<float> doubled_sums(int size, int step) {
  std::vector<float> sums(kElements);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<float> one = values(rank, step);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += 2 * one[i];
  }
  return sums;
}

struct Step {
  std::unique_ptr<Communicator> comm = nccl_communicator("buckets");
  int rank = comm->rank(), size = comm->size();
  Tensor source = on_gpu(std::vector<float>(kElements), DType::kF32);
  Tensor gradients = test_backend().tensor({kElements}, DType::kF32);
  GradientBuckets buckets{comm.get(), gradients, mib(64), mib(700)};
  std::mt19937 random{static_cast<unsigned>(7 * comm->rank())};  // every rank reports in other steps

  // Device work only, so that it can be recorded.
  void run() {
    CudaBackend& gpu = test_backend();
    buckets.begin_step();
    for (std::int64_t ready = 0; ready < kElements;) {
      const std::int64_t count = std::min<std::int64_t>(kElements - ready, 1 + random() % 1500);
      gpu.run(ops::Cast{source.view(ready, {count}), gradients.view(ready, {count})});
      ready += count;
      buckets.ready_up_to(ready);
      if (random() % 2 == 0) buckets.progress();
    }
    buckets.finish();
    gpu.run(ops::Scale{2, gradients, gradients});
  }
};

}  // namespace

TEST_CASE_FIXTURE(Step, "buckets over NCCL sum what becomes ready in steps of any size, over many steps") {
  for (int step = 0; step < 10; ++step) {
    test_backend().copy_from_host(values(rank, step).data(), source);
    run();
    CHECK(from_gpu<float>(gradients) == doubled_sums(size, step));
  }
}

TEST_CASE_FIXTURE(Step, "recorded steps with buckets over NCCL sum the same") {
  run();
  const auto recorded = test_backend().record([this] { run(); });
  REQUIRE(recorded);
  for (int step = 0; step < 5; ++step) {
    test_backend().copy_from_host(values(rank, step).data(), source);
    recorded->replay();
    CHECK(from_gpu<float>(gradients) == doubled_sums(size, step));
  }
}

}  // namespace convoy
