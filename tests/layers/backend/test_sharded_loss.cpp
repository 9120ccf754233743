// SPDX-License-Identifier: Apache-2.0
//
// The operations of a cross-entropy that is divided over ranks by classes, with the ranks one after the other: the
// results are those of SoftmaxCrossEntropy, which test_backend_loss.cpp compares with references.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/base/error.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

constexpr float kScale = 0.25F;

struct Outcome {
  std::vector<double> totals;
  Array gradient;
};

Outcome cross_entropy(Device& device, const Tensor& logits, const std::vector<std::int64_t>& labels, float smoothing) {
  const Tensor totals = device.backend.zeros({3}, DType::kF64);
  const Tensor gradient = device.spoiled(logits.shape(), logits.dtype());
  device.backend.run(
      ops::SoftmaxCrossEntropy{logits, device.put_labels(labels), ops::none(), smoothing, kScale, gradient, totals});
  return {device.get(totals).values, device.get(gradient)};
}

}  // namespace

// Each rank's columns, one more that is no class, and a last row that is no sample; the reductions are made here.
TEST_CASE("cross-entropy of logits that are divided by classes is that of the whole") {
  for (const int ranks : {1, 2, 3, 7}) {
    Device device(2);
    const Shape shape{5, 11};
    const std::int64_t rows = shape[0] + 1, each = (shape[1] + ranks - 1) / ranks;
    Array whole = uniform(shape, 3, -4, 4);
    whole.at(1, 2) = whole.at(1, 7);  // equal logits: the lower index comes first
    std::vector<std::int64_t> labels{0, 7, 3, 10, 6};
    const float smoothing = ranks == 2 ? 0.0F : 0.1F;
    const Outcome expected = cross_entropy(device, device.put(whole), labels, smoothing);
    labels.push_back(-1);
    const Tensor label_tensor = device.put_labels(labels);
    std::vector<Tensor> logits, maxima, sums;
    std::vector<ClassShard> shards;
    const auto combine = [&](std::vector<Tensor>& parts, auto op) {
      std::vector<double> all = device.get(parts.front()).values;
      for (const Tensor& part : parts) {
        const std::vector<double> more = device.get(part).values;
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = &part == parts.data() ? more[i] : op(all[i], more[i]);
      }
      for (const Tensor& part : parts) device.backend.copy_from_host(all.data(), part);
    };
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t first = std::min(rank * each, shape[1]), count = std::min(each, shape[1] - first);
      shards.push_back({first, count, shape[1]});
      Array part({rows, each + 1});
      for (std::int64_t n = 0; n < shape[0]; ++n) {
        for (std::int64_t k = 0; k < each + 1; ++k) part.at(n, k) = k < count ? whole.at(n, first + k) : 99;
      }
      logits.push_back(device.put(part));
      maxima.push_back(device.backend.tensor({2, rows}, DType::kF64));
      sums.push_back(device.backend.tensor({3, rows}, DType::kF64));
      device.backend.run(ops::ShardMaxima{logits.back(), label_tensor, shards.back(), maxima.back()});
    }
    combine(maxima, [](double a, double b) { return std::max(a, b); });
    for (std::size_t i = 0; i < logits.size(); ++i) {
      device.backend.run(ops::ShardSums{logits[i], label_tensor, maxima[i], shards[i], sums[i]});
    }
    combine(sums, [](double a, double b) { return a + b; });
    std::vector<double> totals(3);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      // The first rank counts samples 0 and 1, the last the others.
      const std::int64_t first = i == 0 ? 0 : 2, last = i + 1 == logits.size() ? shape[0] : i == 0 ? 2 : first;
      const Tensor own = device.backend.zeros({3}, DType::kF64),
                   gradient = device.spoiled(logits[i].shape(), logits[i].dtype());
      device.backend.run(ops::ShardCrossEntropy{logits[i], label_tensor, maxima[i], sums[i], ops::none(), shards[i],
                                                first, last - first, smoothing, kScale, gradient, own});
      const std::vector<double> counted = device.get(own).values;
      for (std::size_t j = 0; j < 3; ++j) totals[j] += counted[j];
      const Array dlogits = device.get(gradient);
      for (std::int64_t n = 0; n < rows; ++n) {
        for (std::int64_t k = 0; k < each + 1; ++k) {
          const bool counts = n < shape[0] && k < shards[i].count;
          // Sums of 11 numbers in another order, then rounded to float32.
          CHECK(dlogits.at(n, k) ==
                doctest::Approx(counts ? expected.gradient.at(n, shards[i].first + k) : 0.0).epsilon(1e-6));
        }
      }
    }
    CHECK(totals[0] == doctest::Approx(expected.totals[0]).epsilon(1e-12));  // rounding of the sum of exponentials
    CHECK(totals[1] == expected.totals[1]);
    CHECK(totals[2] == expected.totals[2]);
  }
}

TEST_CASE("a label that is no class stops a sharded loss") {
  Device device(1);
  Array values = uniform({2, 4}, 1);
  const Tensor logits = device.put(values), labels = device.put_labels({1, 9});
  const Tensor maxima = device.backend.zeros({2, 2}, DType::kF64), sums = device.backend.zeros({3, 2}, DType::kF64);
  CHECK_THROWS_WITH_AS(device.backend.run(ops::ShardCrossEntropy{logits,
                                                                 labels,
                                                                 maxima,
                                                                 sums,
                                                                 ops::none(),
                                                                 {0, 4, 8},
                                                                 0,
                                                                 2,
                                                                 0,
                                                                 1,
                                                                 ops::none(),
                                                                 device.backend.zeros({3}, DType::kF64)}),
                       doctest::Contains("label 9 of sample 1"), Error);
}
