// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/base/error.h"
#include "parallel/engine/gradient_buckets.h"
#include "tests/parallel/test_tensors.h"

namespace convoy {

TEST_CASE("buckets of ResNet-50: first 1 MiB, then 25 MiB, then the rest") {
  constexpr std::int64_t kMib = 1 << 20;
  const std::vector<BucketRange> ranges = bucket_ranges(25'557'032, kMib, 25 * kMib);
  REQUIRE(ranges.size() == 5);
  CHECK(ranges[0] == BucketRange{0, 262'144});
  CHECK(ranges[1] == BucketRange{262'144, 262'144 + 6'553'600});
  CHECK(ranges[4] == BucketRange{262'144 + 3 * 6'553'600, 25'557'032});
}

TEST_CASE("buckets cover every element once, in order, and keep their sizes") {
  for (const std::int64_t total : {1, 2, 3, 7, 64, 1000, 1001}) {
    for (const std::int64_t first : {1, 4, 5, 40, 4000, 8000}) {
      for (const std::int64_t bytes : {1, 4, 7, 36, 4004, 100'000}) {
        const std::vector<BucketRange> ranges = bucket_ranges(total, first, bytes);
        const auto elements = [](std::int64_t size) { return std::max<std::int64_t>(1, size / 4); };
        std::int64_t next = 0;
        for (std::size_t i = 0; i < ranges.size(); ++i) {
          CHECK(ranges[i].begin == next);
          CHECK(ranges[i].size() >= 1);
          const std::int64_t wanted = elements(i == 0 ? first : bytes);
          CHECK(ranges[i].size() == (i + 1 < ranges.size() ? wanted : std::min(wanted, total - next)));
          next = ranges[i].end;
        }
        CHECK(next == total);
      }
    }
  }
}

TEST_CASE("nothing to reduce has no buckets") { CHECK(bucket_ranges(0, 1024, 1024).empty()); }

TEST_CASE("without other replicas buckets do nothing, but keep their rules") {
  TestTensors tensors;
  const Tensor gradients = tensors.tensor(std::vector<float>{1, 2, 3, 4}, DType::kF32);
  GradientBuckets buckets(nullptr, gradients, 1, 25);
  CHECK(buckets.buckets().size() == 1);
  CHECK_THROWS_AS(buckets.ready_up_to(2), Error);  // before begin_step
  for (int step = 0; step < 2; ++step) {
    buckets.begin_step();
    buckets.ready_up_to(3);
    buckets.ready_up_to(1);
    buckets.progress();
    buckets.finish();
    CHECK(buckets.started() == 0);
  }
  CHECK(values_of<float>(gradients) == std::vector<float>{1, 2, 3, 4});
  buckets.begin_step();
  CHECK_THROWS_AS(buckets.ready_up_to(5), Error);
  CHECK_THROWS_AS(buckets.begin_step(), Error);  // the step before is not finished
}

TEST_CASE("bucket sizes and types are checked") {
  TestTensors tensors;
  const Tensor gradients = tensors.tensor({8}, DType::kF32);
  CHECK_THROWS_WITH_AS(GradientBuckets(nullptr, gradients, 0, 25),
                       "parallel.first_bucket_mb: 0 MiB is not a bucket size (above 0)", Error);
  CHECK_THROWS_AS(GradientBuckets(nullptr, gradients, 1, -1), Error);
  CHECK_THROWS_AS(GradientBuckets(nullptr, tensors.tensor({8}, DType::kF64), 1, 25), Error);
  GradientBuckets empty(nullptr, Tensor(), 1, 25);
  empty.begin_step();
  empty.finish();
  CHECK(empty.buckets().empty());
}

}  // namespace convoy
