// SPDX-License-Identifier: Apache-2.0
//
// Calls the losses of a backend in all their forms, for tests that watch operations.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/layers/backend/random_data.h"

namespace convoy {

// Of the first half of the classes, and a column that is none; the last sample is another rank's.
inline void call_shard_losses(Backend& backend, std::int64_t samples, std::int64_t classes) {
  RandomData data(backend);
  const ClassShard shard{0, (classes + 1) / 2, classes};
  const Shape shape{samples, shard.count + 1};
  const Tensor logits = data.activations(shape, -3, 3), labels = data.labels(samples, classes);
  const Tensor maxima = backend.tensor({2, samples}, DType::kF64), sums = backend.tensor({3, samples}, DType::kF64);
  backend.run(ops::ShardMaxima{logits, labels, shard, maxima});
  const std::vector<double> all(static_cast<std::size_t>(2 * samples), 3.5);  // of other ranks: finite, and greater
  backend.copy_from_host(all.data(), maxima);
  backend.run(ops::ShardSums{logits, labels, maxima, shard, sums});
  const Tensor factor = data.floats({1}, 2, 64);
  for (const bool gradient : {true, false}) {
    backend.run(ops::ShardCrossEntropy{gradient ? logits : Tensor(), labels, maxima, sums, gradient ? factor : Tensor(),
                                       shard, 0, samples - 1, gradient ? 0.1F : 0.0F, 0.25F,
                                       gradient ? data.output(shape) : Tensor(), data.totals()});
  }
}

inline void call_losses(Backend& backend, std::int64_t samples, std::int64_t classes) {
  RandomData data(backend);
  const Shape shape{samples, classes};
  const Tensor outputs = data.activations(shape, -3, 3), labels = data.labels(samples, classes);
  const Tensor factor = data.floats({1}, 2, 64);
  for (const bool gradient : {true, false}) {
    const Tensor loss_scale = gradient ? factor : Tensor();
    const auto dx = [&] { return gradient ? data.output(shape) : Tensor(); };
    for (const float smoothing : {0.0F, 0.1F}) {
      backend.run(ops::SoftmaxCrossEntropy{outputs, labels, ops::none(), smoothing, 0.25F, dx(), data.totals()});
    }
    backend.run(ops::SoftmaxCrossEntropy{outputs, labels, loss_scale, 0.1F, 0.25F, dx(), data.totals()});
    backend.run(
        ops::SoftmaxCrossEntropy{outputs, data.floats(shape, 0, 1), loss_scale, 0.1F, 0.25F, dx(), data.totals()});
    for (const LossFunction function : {LossFunction::kMse, LossFunction::kL1, LossFunction::kBce}) {
      backend.run(ops::PointwiseLoss{outputs, data.floats(shape), ops::none(), 0.25F, dx(), data.totals(), function});
      backend.run(ops::PointwiseLoss{outputs, labels, loss_scale, 0.25F, dx(), data.totals(), function, 0.1F});
    }
  }
  call_shard_losses(backend, samples, classes);
}

}  // namespace convoy
