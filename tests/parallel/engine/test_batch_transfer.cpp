// SPDX-License-Identifier: Apache-2.0
//
// Targets with class weights: the loss against them is torch.nn.CrossEntropyLoss with `weight`, which is written down
// here in float64, and its gradient is that of finite differences.
#include "parallel/engine/batch_transfer.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/loss.h"

using namespace convoy;

namespace {

constexpr std::int64_t kSamples = 4, kClasses = 3;
constexpr double kSmoothing = 0.1;
constexpr std::array<double, 3> kWeights{0.5, 2, 3};
constexpr std::array<std::int64_t, 5> kLabels{1, 0, 2, 1, 2};  // of a mixed batch the first is the partner

using Values = std::vector<double>;  // [kSamples, kClasses]

const Values kLogits{0.3, -1.2, 2.0, 1.5, 0.1, -0.4, -2.0, 0.7, 0.2, 3.0, -1.0, 0.5};

// -sum of w_k * t_k * log(softmax_k) over samples and classes, over `divisor`, with smoothed targets.
double weighted_loss(const Values& logits, const Values& probabilities, double divisor) {
  double loss = 0;
  for (std::size_t n = 0; n < kSamples; ++n) {
    double sum = 0;
    for (std::size_t k = 0; k < kClasses; ++k) sum += std::exp(logits[n * kClasses + k]);
    for (std::size_t k = 0; k < kClasses; ++k) {
      const std::size_t i = n * kClasses + k;
      const double target = (1 - kSmoothing) * probabilities[i] + kSmoothing / static_cast<double>(kClasses);
      loss -= kWeights[k] * target * (logits[i] - std::log(sum));
    }
  }
  return loss / divisor;
}

void check(const Batch& batch, const Values& probabilities, double divisor) {
  OnednnBackend backend(1, DType::kF32);
  BatchTransfer transfer(backend, {kSamples, 2}, 2, {}, kSmoothing);
  const Shape shape{kSamples, kClasses};
  const Tensor outputs = backend.tensor(shape, DType::kF32), doutputs = backend.tensor(shape, DType::kF32);
  const Tensor totals = backend.tensor({3}, DType::kF64);
  const std::vector<float> logits(kLogits.begin(), kLogits.end());
  backend.copy_from_host(logits.data(), outputs);
  backend.zero(totals);
  const Tensor targets = transfer.targets(batch, shape);
  Loss{.label_smoothing = kSmoothing}.apply(backend, outputs, targets, kSamples, doutputs, totals, {}, true);

  const double expected = weighted_loss(kLogits, probabilities, divisor);
  // Logits and targets are float32.
  CHECK(totals.data<double>()[0] / static_cast<double>(kSamples) == doctest::Approx(expected).epsilon(3e-7));
  for (std::size_t i = 0; i < kLogits.size(); ++i) {
    Values above = kLogits, below = kLogits;
    above[i] += 1e-4;
    below[i] -= 1e-4;
    const double slope =
        (weighted_loss(above, probabilities, divisor) - weighted_loss(below, probabilities, divisor)) / 2e-4;
    // Truncation of the difference is below 1e-8, float32's rounding of sums of such weights below 1e-6.
    CHECK(std::abs(static_cast<double>(doutputs.data<float>()[i]) - slope) < 1e-6);
  }

  LoadedBatch loaded;
  transfer.load(batch, shape, loaded);
  CHECK(loaded.targets.shape() == shape);
  for (std::int64_t i = 0; i < shape.size(); ++i) CHECK(loaded.targets.data<float>()[i] == targets.data<float>()[i]);
}

}  // namespace

TEST_CASE("class weights of labels and of mixed labels") {
  const std::vector<float> inputs(10);
  Batch batch;
  batch.samples = kSamples;
  batch.input_shape = {kSamples, 2};
  batch.inputs = inputs.data();
  SUBCASE("labels: the mean is weighted") {
    constexpr double kDivisor = 0.5 + 3 + 2 + 3;
    batch.labels = kLabels.data() + 1;
    batch.class_weights = ClassWeights{kWeights, static_cast<double>(kSamples) / kDivisor};
    check(batch, {1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}, kDivisor);
  }
  SUBCASE("mixed labels: the mean is over the samples") {
    batch.labels = kLabels.data();
    batch.mixing = Mixing{.labels = {0.75F, 0.25F}};
    batch.class_weights = ClassWeights{kWeights, 1};
    check(batch, {0.75, 0.25, 0, 0.25, 0, 0.75, 0, 0.75, 0.25, 0, 0.25, 0.75}, static_cast<double>(kSamples));
  }
}
