// SPDX-License-Identifier: Apache-2.0
//
// Losses of the CPU backend: closed forms, the float64 reference, finite differences, and the rules of the totals.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "layers/base/error.h"
#include "tests/layers/backend/reference.h"
#include "tests/layers/gradient_check.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

std::vector<std::int64_t> labels_for(const Shape& shape, std::int64_t factor = 7) {
  std::vector<std::int64_t> labels;
  for (std::int64_t n = 0; n < shape[0]; ++n) labels.push_back(n * factor % shape[1]);
  return labels;
}

Tensor zero_totals(Device& device) {
  const Tensor totals = device.backend.tensor({3}, DType::kF64);
  device.backend.zero(totals);
  return totals;
}

struct Outcome {
  std::vector<double> totals;
  Array gradient;
};

Outcome cross_entropy(Device& device, const Tensor& logits, const std::vector<std::int64_t>& labels, float smoothing,
                      float scale = 1.0F) {
  const Tensor totals = zero_totals(device), gradient = device.spoiled(logits.shape(), logits.dtype());
  device.backend.run(
      ops::SoftmaxCrossEntropy{logits, device.put_labels(labels), ops::none(), smoothing, scale, gradient, totals});
  return {device.get(totals).values, device.get(gradient)};
}

// Class probabilities.
Array shares(const Shape& shape) {
  Array targets = uniform(shape, 9, 0.0, 1.0);
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    double sum = 0;
    for (std::int64_t k = 0; k < shape[1]; ++k) sum += targets.at(n, k);
    for (std::int64_t k = 0; k < shape[1]; ++k) targets.at(n, k) /= sum;
  }
  return targets;
}

constexpr LossFunction kFunctions[] = {LossFunction::kMse, LossFunction::kL1, LossFunction::kBce};
const Shape kShapes[] = {{1, 1}, {1, 3}, {4, 10}, {33, 17}, {5, 4}, {16, 1000}, {3000, 8}};

}  // namespace

TEST_CASE("the factor of the gradient that is in memory") {
  Device device(2);
  const Shape shape{4, 10};
  Array values = uniform(shape, 3), power({1}, 1024.0);  // a power of two rounds nothing
  const Tensor outputs = device.put(values), factor = device.put(power), labels = device.put_labels(labels_for(shape));
  const auto gradients = [&](const Tensor& loss_scale) {
    const Tensor entropy = device.spoiled(shape, outputs.dtype()), squares = device.spoiled(shape, outputs.dtype());
    device.backend.run(
        ops::SoftmaxCrossEntropy{outputs, labels, loss_scale, 0.1F, 0.25F, entropy, zero_totals(device)});
    device.backend.run(ops::PointwiseLoss{outputs, labels, loss_scale, 0.25F, squares, zero_totals(device)});
    std::vector<double> both = device.get(entropy).values;
    const std::vector<double> more = device.get(squares).values;
    both.insert(both.end(), more.begin(), more.end());
    return both;
  };
  const std::vector<double> plain = gradients(ops::none()), scaled = gradients(factor);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(scaled[i] == 1024.0 * plain[i]);
}

TEST_CASE("cross-entropy of equal logits is log K, smoothed or not") {
  Device device(2);
  for (const std::int64_t classes : {2, 10, 1000}) {
    for (const double level : {0.0, -300.0, 3e38}) {
      Array logits({3, classes}, level);
      const Tensor tensor = device.put(logits);
      for (const float smoothing : {0.0F, 0.1F}) {
        const Outcome outcome = cross_entropy(device, tensor, {0, 1, classes - 1}, smoothing);
        // Double arithmetic, except that log K disappears beside 3e38 whatever one does.
        const double error = level > 1e30 ? 1e23 : 1e-10;
        CHECK(std::abs(outcome.totals[0] - 3.0 * std::log(static_cast<double>(classes))) <= error);
        CHECK(outcome.totals[1] == 1.0);  // ties go to the lower index
        CHECK(outcome.totals[2] == (classes == 2 ? 3.0 : 2.0));
      }
    }
  }
}

TEST_CASE("cross-entropy agrees with float64") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const Shape& shape : kShapes) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const float smoothing : {0.0F, 0.1F, 1.0F}) {
          Array logits = uniform(shape, 1, -8.0, 8.0);
          const Tensor tensor = device.put(logits, dtype);
          const auto labels = labels_for(shape);
          const LossResult expected = reference::cross_entropy(logits, labels, static_cast<double>(smoothing));
          const Outcome outcome = cross_entropy(device, tensor, labels, smoothing, 0.25F);
          // All in double; the two add in different orders.
          CHECK(outcome.totals[0] == doctest::Approx(expected.loss).epsilon(1e-12));
          CHECK(outcome.totals[1] == expected.top1);
          CHECK(outcome.totals[2] == expected.top5);
          Array gradient = expected.gradient;
          for (double& value : gradient.values) value *= 0.25;
          // One rounding; and where p - q cancels, double's own.
          check_close(outcome.gradient, gradient, 1.01 * rounding(dtype), 1e-15, shape.str());
        }
      }
    }
  }
}

TEST_CASE("gradients of the losses agree with finite differences of the reference") {
  Device device(1);
  const Shape shape{4, 6};
  const auto labels = labels_for(shape);
  Array x = uniform(shape, 2, -2.0, 2.0), targets = uniform(shape, 3);
  const Tensor tensor = device.put(x), target_tensor = device.put(targets);
  const auto check = [&](const std::string& what, const Array& gradient, auto&& loss) {
    std::vector<float> buffer(x.values.begin(), x.values.end());
    const std::vector<float> analytic(gradient.values.begin(), gradient.values.end());
    // Third derivatives are below 1: 1e-6 / 6 of truncation, 1e-15 / 1e-3 of rounding, 6e-8 of the stored gradient.
    check_gradient(what, buffer, analytic,
                   [&] {
                     x.values.assign(buffer.begin(), buffer.end());
                     return loss();
                   },
                   {.step = 1e-3, .tolerance = 2e-6});
    x.values.assign(buffer.begin(), buffer.end());
  };
  for (const float smoothing : {0.0F, 0.2F}) {
    check("cross-entropy", cross_entropy(device, tensor, labels, smoothing).gradient,
          [&] { return reference::cross_entropy(x, labels, static_cast<double>(smoothing)).loss; });
  }
  Array probabilities = shares(shape);
  const Tensor gradient = device.spoiled(shape), totals = zero_totals(device), soft = device.put(probabilities);
  for (const float smoothing : {0.0F, 0.2F}) {
    device.backend.run(ops::SoftmaxCrossEntropy{tensor, soft, ops::none(), smoothing, 1.0F, gradient, totals});
    check("soft targets", device.get(gradient),
          [&] { return reference::cross_entropy(x, probabilities, static_cast<double>(smoothing)).loss; });
    for (const LossFunction function : kFunctions) {
      device.backend.run(
          ops::PointwiseLoss{tensor, target_tensor, ops::none(), 1.0F, gradient, totals, function, smoothing});
      check("pointwise", device.get(gradient),
            [&] { return reference::pointwise_loss(function, x, targets, static_cast<double>(smoothing)).loss; });
    }
  }
}

TEST_CASE("cross-entropy of class probabilities agrees with float64") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const Shape& shape : kShapes) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const float smoothing : {0.0F, 0.1F}) {
          Array logits = uniform(shape, 1, -8.0, 8.0), targets = shares(shape);
          const Tensor tensor = device.put(logits, dtype), target_tensor = device.put(targets);
          const LossResult expected = reference::cross_entropy(logits, targets, static_cast<double>(smoothing));
          const Tensor gradient = device.spoiled(shape, dtype), totals = zero_totals(device);
          device.backend.run(
              ops::SoftmaxCrossEntropy{tensor, target_tensor, ops::none(), smoothing, 0.25F, gradient, totals});
          const std::vector<double> sums = device.get(totals).values;
          // All in double; the two add in different orders.
          CHECK(sums[0] == doctest::Approx(expected.loss).epsilon(1e-11));
          CHECK(sums[1] == expected.top1);
          CHECK(sums[2] == expected.top5);
          Array quarter = expected.gradient;
          for (double& value : quarter.values) value *= 0.25;
          check_close(device.get(gradient), quarter, 1.01 * rounding(dtype), 1e-15, shape.str());  // one rounding
        }
      }
    }
  }
}

TEST_CASE("labels and their one-hot probabilities give the same bits") {
  Device device(2);
  const Shape shape{33, 17};
  Array logits = uniform(shape, 1, -8.0, 8.0), one_hot(shape);
  const auto labels = labels_for(shape);
  for (std::int64_t n = 0; n < shape[0]; ++n) one_hot.at(n, labels[static_cast<std::size_t>(n)]) = 1.0;
  const Tensor tensor = device.put(logits), soft = device.put(one_hot);
  for (const float smoothing : {0.0F, 0.1F}) {
    const Outcome expected = cross_entropy(device, tensor, labels, smoothing);
    const Tensor gradient = device.spoiled(shape), totals = zero_totals(device);
    device.backend.run(ops::SoftmaxCrossEntropy{tensor, soft, ops::none(), smoothing, 1.0F, gradient, totals});
    CHECK(device.get(totals).values == expected.totals);
    CHECK(device.get(gradient).values == expected.gradient.values);
  }
}

TEST_CASE("binary cross-entropy of large logits neither overflows nor loses its slope") {
  Device device(1);
  Array logits({1, 4}), targets({1, 4});
  logits.values = {1e30, -1e30, 100, -100};
  targets.values = {1, 0, 0, 1};
  const Tensor gradient = device.spoiled({1, 4}), totals = zero_totals(device);
  device.backend.run(ops::PointwiseLoss{device.put(logits), device.put(targets), ops::none(), 1.0F, gradient, totals,
                                        LossFunction::kBce});
  CHECK(device.get(totals).values == std::vector<double>{50.0, 0.5, 0.0});  // (0 + 0 + 100 + 100) / 4
  CHECK(device.get(gradient).values == std::vector<double>{0, 0, 0.25, -0.25});
}

TEST_CASE("pointwise losses against values and against one-hot classes") {
  for (const int threads : {1, 2}) {
    Device device(threads);
    for (const Shape& shape : kShapes) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Array x = uniform(shape, 4, -3.0, 3.0), values = uniform(shape, 5, 0.0, 1.0), one_hot(shape);
        const Tensor tensor = device.put(x, dtype), value_tensor = device.put(values);
        const auto labels = labels_for(shape);
        for (std::int64_t n = 0; n < shape[0]; ++n) one_hot.at(n, labels[static_cast<std::size_t>(n)]) = 1.0;
        const Tensor label_tensor = device.put_labels(labels);
        const LossResult hits = reference::cross_entropy(x, labels, 0.0);  // counts them the same way
        for (const LossFunction function : kFunctions) {
          for (const bool classes : {false, true}) {
            const float smoothing = function == LossFunction::kBce ? 0.1F : 0.0F;
            const LossResult expected =
                reference::pointwise_loss(function, x, classes ? one_hot : values, static_cast<double>(smoothing));
            const Tensor gradient = device.spoiled(shape, dtype), totals = zero_totals(device);
            device.backend.run(ops::PointwiseLoss{tensor, classes ? label_tensor : value_tensor, ops::none(), 0.5F,
                                                  gradient, totals, function, smoothing});
            Array half = expected.gradient;
            for (double& value : half.values) value *= 0.5;
            const Array sums = device.get(totals);
            const LossResult& scores = classes ? hits : expected;
            CHECK(sums.values[0] == doctest::Approx(expected.loss).epsilon(1e-12));  // double, another order
            check_close(device.get(gradient), half, 1.01 * rounding(dtype), 1e-15, shape.str());  // one rounding
            CHECK(sums.values[1] == doctest::Approx(scores.top1).epsilon(1e-12));
            CHECK(sums.values[2] == doctest::Approx(scores.top5).epsilon(1e-12));
          }
        }
      }
    }
  }
}

TEST_CASE("totals of two microbatches are the sums of both, to the bit, on any number of threads") {
  const Shape shape{1400, 16};
  const auto labels = labels_for(shape, 5);
  Array logits = uniform(shape, 6, -3.0, 3.0);
  std::vector<double> first;
  for (const int threads : {1, 2, 3}) {
    Device device(threads);
    const Tensor tensor = device.put(logits), label_tensor = device.put_labels(labels);
    const auto half = [&](std::int64_t start, const Tensor& totals) {
      device.backend.run(ops::SoftmaxCrossEntropy{tensor.view(start * 16, {700, 16}), label_tensor.view(start, {700}),
                                                  ops::none(), 0.1F, 1.0F, Tensor(), totals});
    };
    const Tensor both = zero_totals(device), a = zero_totals(device), b = zero_totals(device);
    half(0, both);
    half(700, both);
    half(0, a);
    half(700, b);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(device.get(both).values[i] == device.get(a).values[i] + device.get(b).values[i]);
    }
    if (first.empty()) first = device.get(both).values;
    CHECK(device.get(both).values == first);
  }
}

TEST_CASE("hits: ranks, ties, few classes and NaN") {
  Device device(1);
  const auto hits = [&](std::vector<double> scores, std::int64_t label) {
    Array logits({1, static_cast<std::int64_t>(scores.size())});
    logits.values = std::move(scores);
    const Outcome outcome = cross_entropy(device, device.put(logits), {label}, 0.0F);
    return std::vector<double>{outcome.totals[1], outcome.totals[2]};
  };
  using Hits = std::vector<double>;
  CHECK(hits({7, 6, 5, 4, 3, 2}, 0) == Hits{1, 1});
  CHECK(hits({7, 6, 5, 4, 3, 2}, 4) == Hits{0, 1});
  CHECK(hits({7, 6, 5, 4, 3, 2}, 5) == Hits{0, 0});
  CHECK(hits({1, 1, 1, 1, 1, 1}, 0) == Hits{1, 1});
  CHECK(hits({1, 1, 1, 1, 1, 1}, 4) == Hits{0, 1});
  CHECK(hits({1, 1, 1, 1, 1, 1}, 5) == Hits{0, 0});
  CHECK(hits({3, 2, 1}, 2) == Hits{0, 1});
  CHECK(hits({NAN, 2, 1}, 0) == Hits{0, 0});
  CHECK(hits({NAN, NAN, NAN, NAN, NAN, NAN}, 0) == Hits{0, 0});
  CHECK(hits({NAN, 2, 1}, 1) == Hits{0, 1});
}

TEST_CASE("NaN and infinite logits give NaN losses") {
  Device device(1);
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    Array logits({2, 3}, 0.5);
    logits.at(1, 2) = bad;
    const Outcome outcome = cross_entropy(device, device.put(logits), {0, 0}, 0.0F);
    CHECK(std::isnan(outcome.totals[0]));
    CHECK(std::isfinite(outcome.gradient.at(0, 0)));
    CHECK(std::isnan(outcome.gradient.at(1, 2)));
  }
}

TEST_CASE("labels out of range are named") {
  Device device(1);
  Array logits({3, 10});
  const Tensor tensor = device.put(logits), totals = zero_totals(device);
  for (const std::int64_t bad : {std::int64_t{10}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    const Tensor labels = device.put_labels({1, 2, bad});
    for (const bool entropy : {false, true}) {
      std::string message;
      try {
        if (entropy) {
          device.backend.run(ops::SoftmaxCrossEntropy{tensor, labels, ops::none(), 0.0F, 1.0F, Tensor(), totals});
        } else {
          device.backend.run(ops::PointwiseLoss{tensor, labels, ops::none(), 1.0F, Tensor(), totals});
        }
      } catch (const Error& error) {
        message = error.what();
      }
      CAPTURE(message);
      CHECK(message.find("sample 2") != std::string::npos);
      CHECK(message.find(std::to_string(bad)) != std::string::npos);
    }
  }
  CHECK(device.get(totals).values == std::vector<double>{0.0, 0.0, 0.0});
}
