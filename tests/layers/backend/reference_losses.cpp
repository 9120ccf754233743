// SPDX-License-Identifier: Apache-2.0
//
// Losses in float64.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/layers/backend/reference.h"

namespace convoy::reference {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Classes from the best down, equal ones in their order; NaN first, as torch.topk has it.
std::vector<std::int64_t> ranking(const Array& scores, std::int64_t n) {
  std::vector<std::int64_t> order(at(scores.shape[1]));
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](std::int64_t k) {
    const double score = scores.at(n, k);
    return std::isnan(score) ? std::numeric_limits<double>::infinity() : score;
  };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return key(a) > key(b); });
  return order;
}

}  // namespace

LossResult cross_entropy(const Array& logits, const std::vector<std::int64_t>& labels, double smoothing) {
  Array one_hot(logits.shape);
  for (std::int64_t n = 0; n < logits.shape[0]; ++n) one_hot.at(n, labels[at(n)]) = 1.0;
  return cross_entropy(logits, one_hot, smoothing);
}

LossResult cross_entropy(const Array& logits, const Array& targets, double smoothing) {
  const std::int64_t classes = logits.shape[1];
  LossResult result{0.0, 0.0, 0.0, Array(logits.shape)};
  for (std::int64_t n = 0; n < logits.shape[0]; ++n) {
    const std::vector<std::int64_t> order = ranking(logits, n);
    const double top = logits.at(n, order[0]);
    double sum = 0.0, total = 0.0;
    std::int64_t label = 0;
    for (std::int64_t k = 0; k < classes; ++k) {
      sum += std::exp(logits.at(n, k) - top);
      total += (1.0 - smoothing) * targets.at(n, k) + smoothing / static_cast<double>(classes);
      if (targets.at(n, k) > targets.at(n, label)) label = k;
    }
    for (std::int64_t k = 0; k < classes; ++k) {
      const double wanted = (1.0 - smoothing) * targets.at(n, k) + smoothing / static_cast<double>(classes);
      const double log_probability = logits.at(n, k) - top - std::log(sum);
      result.loss -= wanted * log_probability;
      result.gradient.at(n, k) = std::exp(log_probability) * total - wanted;
    }
    const auto place = std::find(order.begin(), order.end(), label) - order.begin();
    result.top1 += place < 1 ? 1.0 : 0.0;
    result.top5 += place < 5 ? 1.0 : 0.0;
  }
  return result;
}

LossResult pointwise_loss(LossFunction function, const Array& predictions, const Array& targets, double smoothing) {
  const std::int64_t outputs = predictions.shape[1];
  const auto count = static_cast<double>(outputs);
  LossResult result{0.0, 0.0, 0.0, Array(predictions.shape)};
  for (std::int64_t n = 0; n < predictions.shape[0]; ++n) {
    double absolute = 0, squares = 0, right = 0;
    for (std::int64_t k = 0; k < outputs; ++k) {
      const double p = predictions.at(n, k), given = targets.at(n, k);
      const double t = (1.0 - smoothing) * given + smoothing / count, difference = p - t;
      absolute += std::abs(difference);
      squares += difference * difference;
      right += (p > 0) == (given > 0.5) ? 1 : 0;
      double loss = 0, slope = 0;
      if (function == LossFunction::kMse) {
        loss = difference * difference;
        slope = 2 * difference;
      } else if (function == LossFunction::kL1) {
        loss = std::abs(difference);
        slope = difference == 0 ? 0 : std::copysign(1.0, difference);
      } else {  // log(sigmoid(p)) and log(sigmoid(-p)): nothing overflows where |p| < 700
        loss = t * std::log1p(std::exp(-p)) + (1 - t) * std::log1p(std::exp(p));
        slope = 1 / (1 + std::exp(-p)) - t;
      }
      result.loss += loss / count;
      result.gradient.at(n, k) = slope / count;
    }
    const bool bce = function == LossFunction::kBce;
    result.top1 += (bce ? right : absolute) / count;
    result.top5 += bce ? (right == count ? 1 : 0) : squares / count;
  }
  return result;
}

}  // namespace convoy::reference
