// SPDX-License-Identifier: Apache-2.0
//
// The order of data by exhaustion: every sample once, for all small sizes, over all cuts into replicas, microbatches
// and steps.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <vector>

#include "io/data/sampler.h"
#include "layers/base/error.h"

using namespace convoy;

TEST_CASE("a permutation is a bijection for sizes 1 to 2000") {
  std::vector<char> seen;
  for (std::int64_t size = 1; size <= 2000; ++size) {
    const Permutation permutation(size, static_cast<std::uint64_t>(size) * 7919);
    seen.assign(static_cast<std::size_t>(size), 0);
    bool good = true;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t value = permutation(i);
      good = good && value >= 0 && value < size && !seen[static_cast<std::size_t>(value)]++;
    }
    REQUIRE_MESSAGE(good, "size " << size);
  }
}

TEST_CASE("a permutation of a large range has no collisions in a sample of it") {
  for (const std::int64_t size : {std::int64_t{1281167}, std::int64_t{1} << 32, std::int64_t{1000000007},
                                  (std::int64_t{1} << 40) + 1, std::int64_t{1} << 62}) {
    const Permutation permutation(size, 42);
    std::set<std::int64_t> values;
    for (std::int64_t i = 0; i < 20000; ++i) {
      const std::int64_t value = permutation(i * (size / 20000));
      REQUIRE(value >= 0);
      REQUIRE(value < size);
      values.insert(value);
    }
    CHECK(values.size() == 20000);
  }
}

TEST_CASE("a permutation spreads samples evenly") {
  // Where the first tenth of positions lands, in ten bins: 1000 each, within 6 standard deviations of the binomial
  // (about 30).
  constexpr std::int64_t kSize = 100000;
  const Permutation permutation(kSize, 3);
  std::vector<int> bins(10, 0);
  for (std::int64_t i = 0; i < kSize / 10; ++i) ++bins[static_cast<std::size_t>(permutation(i) * 10 / kSize)];
  for (const int count : bins) CHECK(std::abs(count - 1000) < 180);
}

TEST_CASE("small permutations take many forms over the keys") {
  std::set<std::vector<std::int64_t>> forms;
  for (std::uint64_t key = 0; key < 2000; ++key) {
    const Permutation permutation(4, key);
    forms.insert({permutation(0), permutation(1), permutation(2), permutation(3)});
  }
  CHECK(forms.size() >= 12);
}

TEST_CASE("the order never changes between versions") {
  const Sampler sampler(10, 42, true);
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < 10; ++i) order.push_back(sampler.index(0, i));
  CHECK(order == std::vector<std::int64_t>{3, 8, 1, 7, 0, 4, 9, 6, 2, 5});
}

TEST_CASE("the digest of a step is that of its samples in order") {
  const Sampler sampler(10, 42, true);
  CHECK(sampler.digest(0, 1, 3) == 0x4C8D5D51);  // of 8, 1, 7, by another program
  CHECK(sampler.digest(0, 1, 0) == 0);
  CHECK(sampler.digest(0, 1, 3) != sampler.digest(0, 2, 3));
  CHECK(sampler.digest(0, 1, 3) != sampler.digest(1, 1, 3));
}

TEST_CASE("epochs and seeds have orders of their own; without shuffle there is one") {
  const Sampler a(1000, 1, true), b(1000, 2, true), plain(1000, 1, false);
  int same_epoch = 0, same_seed = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    same_epoch += a.index(0, i) == a.index(1, i);
    same_seed += a.index(0, i) == b.index(0, i);
    CHECK(a.index(5, i) == Sampler(1000, 1, true).index(5, i));
    CHECK(plain.index(7, i) == i);
  }
  CHECK(same_epoch < 20);
  CHECK(same_seed < 20);
}

TEST_CASE("balanced: each class equally likely, then each of its samples, drawn anew in every epoch") {
  // Classes of 1, 0, 9, 90 and 900 samples, mixed.
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t place = i * 377 % 1000;
    labels.push_back(place < 1 ? 0 : place < 10 ? 2 : place < 100 ? 3 : 4);
  }
  const Sampler sampler(labels, 5), other(labels, 6);
  CHECK(sampler.size() == 1000);
  std::vector<std::int64_t> of_class(5), of_sample(1000);
  constexpr std::int64_t kEpochs = 90;
  int same_epoch = 0, same_seed = 0;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (std::int64_t i = 0; i < 1000; ++i) {
      const SampleId id = sampler.at(epoch, i);
      REQUIRE(id.index == sampler.index(epoch, i));
      CHECK(id.epoch == epoch);
      CHECK(id.draw == i + 1);
      ++of_class[static_cast<std::size_t>(labels[static_cast<std::size_t>(id.index)])];
      ++of_sample[static_cast<std::size_t>(id.index)];
      same_epoch += id.index == sampler.index(epoch + 1, i) ? 1 : 0;
      same_seed += id.index == other.index(epoch, i) ? 1 : 0;
    }
  }
  // A quarter of 90,000 draws each: five standard deviations of the binomial distribution are 650.
  CHECK(of_class[1] == 0);
  for (const std::size_t label : {0, 2, 3, 4}) CHECK(std::abs(of_class[label] - 22500) < 650);
  // Within a class: 2500 of each of 9 (five deviations: 247), 250 of 90 (79), 25 of 900 (25).
  for (std::size_t i = 0; i < 1000; ++i) {
    if (labels[i] == 2) CHECK(std::abs(of_sample[i] - 2500) < 247);
    if (labels[i] == 3) CHECK(std::abs(of_sample[i] - 250) < 79);
    if (labels[i] == 4) CHECK(std::abs(of_sample[i] - 25) < 25);
  }
  // By chance two draws are the same sample with a probability of (1 + 1/9 + 1/90 + 1/900) / 16 = 0.07.
  CHECK(same_epoch < 7000);
  CHECK(same_seed < 7000);
  const Sampler copy = sampler;
  CHECK(copy.digest(3, 10, 50) == sampler.digest(3, 10, 50));
  CHECK(copy.digest(3, 10, 50) != Sampler(1000, 5, true).digest(3, 10, 50));
  CHECK(Sampler(1000, 5, true).at(2, 7).draw == 0);
  CHECK_THROWS_AS(Sampler(std::vector<std::int64_t>{0, -1}, 5), Error);
  CHECK_THROWS_AS(Sampler(std::vector<std::int64_t>{}, 5), Error);
}

TEST_CASE("balanced: values stay as they are, since a checkpoint stores a position only") {
  const Sampler sampler({0, 1, 1, 2, 2, 2, 2, 0}, 42);
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < 8; ++i) order.push_back(sampler.index(1, i));
  CHECK(order == std::vector<std::int64_t>{6, 7, 7, 2, 4, 1, 7, 3});
}

TEST_CASE("positions out of range are errors") {
  const Sampler sampler(5, 0, true);
  CHECK_THROWS_AS((void)sampler.index(0, 5), Error);
  CHECK_THROWS_AS((void)sampler.index(0, -1), Error);
  CHECK_THROWS_AS(Sampler(0, 0, true), Error);
}

TEST_CASE("parts are contiguous, cover the whole, and differ by at most one") {
  for (std::int64_t count = 0; count <= 40; ++count) {
    for (std::int64_t parts = 1; parts <= 9; ++parts) {
      std::int64_t next = 100;
      for (std::int64_t p = 0; p < parts; ++p) {
        const Range range = part(100, count, parts, p);
        CHECK(range.first == next);
        CHECK(range.count >= count / parts);
        CHECK(range.count <= count / parts + 1);
        if (count % parts == 0) CHECK(range.count == count / parts);
        next += range.count;
      }
      CHECK(next == 100 + count);
    }
  }
}

TEST_CASE("steps of an epoch") {
  CHECK(BatchPlan{100, 32, true}.steps_per_epoch() == 3);
  CHECK(BatchPlan{100, 32, false}.steps_per_epoch() == 4);
  CHECK(BatchPlan{96, 32, false}.steps_per_epoch() == 3);
  CHECK(BatchPlan{20, 32, true}.steps_per_epoch() == 0);
  CHECK(BatchPlan{100, 32, true}.batch_at(64) == Range{64, 32});
  CHECK(BatchPlan{100, 32, true}.batch_at(96).count == 0);
  CHECK(BatchPlan{100, 32, false}.batch_at(96) == Range{96, 4});
  CHECK(BatchPlan{100, 32, false}.batch_at(100).count == 0);
}

namespace {

// Adds the samples that `replicas` x `microbatches` see from `position` on; stops after `steps` steps. Returns where.
std::int64_t see(const Sampler& sampler, const BatchPlan& plan, std::int64_t parts, std::int64_t position,
                 std::int64_t steps, std::vector<int>& seen) {
  for (; steps > 0; --steps) {
    const Range batch = plan.batch_at(position);
    if (batch.count == 0) break;
    for (std::int64_t p = 0; p < parts; ++p) {
      const Range range = part(batch.first, batch.count, parts, p);
      for (std::int64_t i = 0; i < range.count; ++i) {
        ++seen[static_cast<std::size_t>(sampler.index(2, range.first + i))];
      }
    }
    position += batch.count;
  }
  return position;
}

}  // namespace

TEST_CASE("every sample is seen once, also when a run resumes with another number of parts") {
  for (const std::int64_t size : {1, 7, 64, 97, 1437}) {
    const Sampler sampler(size, 9, true);
    for (const std::int64_t batch : {1, 8, 24, 48}) {
      const BatchPlan plan{size, batch, false};
      for (const std::int64_t before : {1, 2, 8}) {
        for (const std::int64_t after : {1, 3, 4}) {
          std::vector<int> seen(static_cast<std::size_t>(size), 0);
          const auto middle = see(sampler, plan, before, 0, plan.steps_per_epoch() / 2, seen);
          see(sampler, plan, after, middle, plan.steps_per_epoch(), seen);
          CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
        }
      }
    }
  }
}
