// SPDX-License-Identifier: Apache-2.0
//
// Losses of the CPU backend, in double. Each call adds its own sum, taken in sample order, to the totals in one
// addition: two microbatches added one after the other give the bits of the sum of their separate sums, and the
// thread count changes nothing.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_loops.h"
#include "layers/base/rehearsal.h"

namespace convoy {

namespace {

struct Score {
  double loss, top1, top5;
};

// Adds scores, in order, to totals [3].
void add_scores(const double* losses, const double* top1, const double* top5, std::int64_t samples, double* totals) {
  Score sum{0.0, 0.0, 0.0};
  for (std::int64_t n = 0; n < samples; ++n) {
    sum.loss += losses[n];
    sum.top1 += top1[n];
    sum.top5 += top5[n];
  }
  totals[0] += sum.loss;
  totals[1] += sum.top1;
  totals[2] += sum.top5;
}

void check_labels(const std::int64_t* labels, std::int64_t samples, std::int64_t classes) {
  if (rehearsing()) return;
  for (std::int64_t n = 0; n < samples; ++n) {
    if (labels[n] < 0 || labels[n] >= classes) {
      fail("label {} of sample {} of the batch is outside 0 to {} (the network has {} outputs)", labels[n], n,
           classes - 1, classes);
    }
  }
}

// How many classes come before the target: greater scores, equal ones of a lower index, NaNs. A NaN target
// comes after all.
template <class T>
std::int64_t rank_of(const T* scores, std::int64_t classes, std::int64_t target) {
  const float own = load(scores[target]);
  if (std::isnan(own)) return std::max<std::int64_t>(classes, 5);
  std::int64_t ahead = 0;
  for (std::int64_t k = 0; k < classes; ++k) {
    const float other = load(scores[k]);
    ahead += !(other <= own) || (other == own && k < target) ? 1 : 0;
  }
  return ahead;
}

// What the gradient of a loss is multiplied by. A rehearsal computes nothing and has no memory to read.
template <class Operation>
double gradient_scale(const Operation& op) {
  if (!op.loss_scale || rehearsing()) return op.scale;
  return static_cast<double>(op.scale) * static_cast<double>(*op.loss_scale.template data<const float>());
}

struct CrossEntropy {
  std::int64_t classes;
  double smoothing, scale;
};

// One sample: returns its loss, and sets dlogits [classes] unless null. exps: double [classes].
template <class T>
double cross_entropy_sample(const CrossEntropy& loss, const T* logits, std::int64_t label, double* exps, T* dlogits) {
  const std::int64_t classes = loss.classes;
  double top = load(logits[0]), sum_logits = 0.0, sum_exps = 0.0;
  for (std::int64_t k = 1; k < classes; ++k) top = std::max(top, static_cast<double>(load(logits[k])));
  for (std::int64_t k = 0; k < classes; ++k) {
    exps[k] = std::exp(static_cast<double>(load(logits[k])) - top);
    sum_exps += exps[k];
    sum_logits += load(logits[k]);
  }
  const double log_sum = top + std::log(sum_exps);
  const double even = loss.smoothing / static_cast<double>(classes);
  if (dlogits != nullptr) {
    for (std::int64_t k = 0; k < classes; ++k) {
      const double wanted = even + (k == label ? 1.0 - loss.smoothing : 0.0);
      store(static_cast<float>(loss.scale * (exps[k] / sum_exps - wanted)), dlogits + k);
    }
  }
  const double hard = log_sum - load(logits[label]);
  if (loss.smoothing == 0.0) return hard;
  return (1.0 - loss.smoothing) * hard + loss.smoothing * log_sum - even * sum_logits;
}

}  // namespace

void OnednnBackend::run(const ops::SoftmaxCrossEntropy& op) {
  const std::int64_t samples = op.logits.shape()[0], classes = op.logits.shape()[1], threads = omp_get_max_threads();
  const auto* targets = op.labels.data<std::int64_t>();
  check_labels(targets, samples, classes);
  double* losses = scratch(static_cast<std::size_t>(3 * samples + threads * classes));
  double *top1 = losses + samples, *top5 = top1 + samples, *exps = top5 + samples;
  const CrossEntropy loss{classes, op.smoothing, gradient_scale(op)};
  dispatch_activation(op.logits.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.logits.data<T>();
    T* dinput = op.dlogits.data<T>();
    parallel_ranges(samples, 1 + 1024 / classes, [=](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t n = first; n < last; ++n) {
        const T* row = input + n * classes;
        const std::int64_t rank = rank_of(row, classes, targets[n]);
        top1[n] = rank < 1 ? 1.0 : 0.0;
        top5[n] = rank < 5 ? 1.0 : 0.0;
        losses[n] = cross_entropy_sample(loss, row, targets[n], exps + thread * classes,
                                         dinput == nullptr ? nullptr : dinput + n * classes);
      }
    });
  });
  add_scores(losses, top1, top5, samples, op.totals.data<double>());
}

void OnednnBackend::run(const ops::Mse& op) {
  const std::int64_t samples = op.predictions.shape()[0], outputs = op.predictions.shape().sample_size();
  const bool one_hot = op.targets.dtype() == DType::kI64;
  const auto* labels = one_hot ? op.targets.data<std::int64_t>() : nullptr;
  const auto* values = one_hot ? nullptr : op.targets.data<float>();
  if (one_hot) check_labels(labels, samples, outputs);
  double* losses = scratch(static_cast<std::size_t>(3 * samples));
  double *top1 = losses + samples, *top5 = top1 + samples;
  const double slope = 2.0 * gradient_scale(op) / static_cast<double>(outputs);
  dispatch_activation(op.predictions.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.predictions.data<T>();
    T* dinput = op.dpredictions.data<T>();
    parallel_ranges(samples, 1 + 8192 / outputs, [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t n = first; n < last; ++n) {
        const T* row = input + n * outputs;
        double sum = 0.0, absolute = 0.0;
        for (std::int64_t k = 0; k < outputs; ++k) {
          const double wanted = one_hot ? (k == labels[n] ? 1.0 : 0.0) : static_cast<double>(values[n * outputs + k]);
          const double difference = static_cast<double>(load(row[k])) - wanted;
          sum += difference * difference;
          absolute += std::abs(difference);
          if (dinput != nullptr) store(static_cast<float>(slope * difference), dinput + n * outputs + k);
        }
        losses[n] = sum / static_cast<double>(outputs);
        const std::int64_t rank = one_hot ? rank_of(row, outputs, labels[n]) : 5;
        top1[n] = one_hot ? (rank < 1 ? 1.0 : 0.0) : absolute / static_cast<double>(outputs);
        top5[n] = rank < 5 ? 1.0 : 0.0;
      }
    });
  });
  add_scores(losses, top1, top5, samples, op.totals.data<double>());
}

}  // namespace convoy
