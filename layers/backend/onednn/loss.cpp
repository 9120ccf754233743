// SPDX-License-Identifier: Apache-2.0
//
// Losses of the CPU backend, in double. Each call adds its own sum, taken in sample order, to the totals in one
// addition: two microbatches added one after the other give the bits of the sum of their separate sums, and the
// thread count changes nothing.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_loops.h"
#include "layers/base/rehearsal.h"

namespace convoy {

namespace {

// Adds losses and the two scores, in order, to totals [3].
void add_scores(const double* losses, const double* first, const double* second, std::int64_t samples, double* totals) {
  double loss = 0.0, first_sum = 0.0, second_sum = 0.0;
  for (std::int64_t n = 0; n < samples; ++n) {
    loss += losses[n];
    first_sum += first[n];
    second_sum += second[n];
  }
  totals[0] += loss;
  totals[1] += first_sum;
  totals[2] += second_sum;
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

// The targets of a loss: labels or values, the other is null.
struct Targets {
  const std::int64_t* labels = nullptr;
  const float* values = nullptr;
  std::int64_t outputs;

  Targets(const Tensor& tensor, std::int64_t samples, std::int64_t count) : outputs(count) {
    if (tensor.dtype() == DType::kI64) {
      labels = tensor.data<std::int64_t>();
      check_labels(labels, samples, outputs);
    } else {
      values = tensor.data<float>();
    }
  }
  // The class of sample n: the first of the largest values.
  [[nodiscard]] std::int64_t label(std::int64_t n) const {
    if (labels != nullptr) return labels[n];
    const float* row = values + n * outputs;
    return std::max_element(row, row + outputs) - row;
  }
};

struct CrossEntropy {
  std::int64_t classes;
  double smoothing, scale;
};

// One sample: returns its loss, and sets dlogits [classes] unless null. wanted(k): the target of class k, which is not
// smoothed; total: their sum; hard_logit: sum of target * logit. exps: double [classes].
template <class T, class Wanted>
double cross_entropy_sample(const CrossEntropy& loss, const T* logits, Wanted&& wanted, double total, double hard_logit,
                            double* exps, T* dlogits) {
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
    const double sum = total + loss.smoothing * (1.0 - total);  // of the smoothed targets: 1 of labels, to the bit
    for (std::int64_t k = 0; k < classes; ++k) {
      const double share = exps[k] / sum_exps;
      const double target = even + (1.0 - loss.smoothing) * wanted(k);
      store(static_cast<float>(loss.scale * (share * sum - target)), dlogits + k);
    }
  }
  const double hard = total * log_sum - hard_logit;
  if (loss.smoothing == 0.0) return hard;
  return (1.0 - loss.smoothing) * hard + loss.smoothing * log_sum - even * sum_logits;
}

template <class T>
double cross_entropy_sample(const CrossEntropy& loss, const T* logits, const Targets& targets, std::int64_t n,
                            double* exps, T* dlogits) {
  if (targets.labels != nullptr) {
    const std::int64_t label = targets.labels[n];
    return cross_entropy_sample(
        loss, logits, [label](std::int64_t k) { return k == label ? 1.0 : 0.0; }, 1.0,
        static_cast<double>(load(logits[label])), exps, dlogits);
  }
  const float* row = targets.values + n * loss.classes;
  double total = 0.0, hard_logit = 0.0;
  for (std::int64_t k = 0; k < loss.classes; ++k) {
    total += static_cast<double>(row[k]);
    hard_logit += static_cast<double>(row[k]) * static_cast<double>(load(logits[k]));
  }
  return cross_entropy_sample(
      loss, logits, [row](std::int64_t k) { return static_cast<double>(row[k]); }, total, hard_logit, exps, dlogits);
}

// The functions of LossFunction and their slopes over kFactor.
struct SquaredError {
  static constexpr double kFactor = 2.0;
  static double value(double p, double t) { return (p - t) * (p - t); }
  static double slope(double p, double t) { return p - t; }
};
struct AbsoluteError {
  static constexpr double kFactor = 1.0;
  static double value(double p, double t) { return std::abs(p - t); }
  static double slope(double p, double t) {
    const double difference = p - t;
    return difference > 0 ? 1.0 : difference < 0 ? -1.0 : difference;  // 0 or NaN
  }
};
struct BinaryCrossEntropy {
  static constexpr double kFactor = 1.0;
  static double value(double p, double t) { return std::max(p, 0.0) - p * t + std::log1p(std::exp(-std::abs(p))); }
  static double slope(double p, double t) { return 1.0 / (1.0 + std::exp(-p)) - t; }
};

template <class Body>
void dispatch_loss(LossFunction function, Body&& body) {
  switch (function) {
    case LossFunction::kMse: return body(SquaredError{});
    case LossFunction::kL1: return body(AbsoluteError{});
    case LossFunction::kBce: return body(BinaryCrossEntropy{});
  }
}

// The rows of logits that are divided over ranks. Calls body(row, n) for each.
template <class T, class Body>
void for_shard_rows(const Tensor& logits, Body&& body) {
  const std::int64_t columns = logits.shape()[1];
  const T* rows = logits.data<T>();
  parallel_ranges(logits.shape()[0], 1 + 1024 / columns, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t n = first; n < last; ++n) body(rows + n * columns, n);
  });
}

// losses: scratch memory, double [3, samples].
template <class Function>
void pointwise_loss(const ops::PointwiseLoss& op, double* losses) {
  const std::int64_t samples = op.predictions.shape()[0], outputs = op.predictions.shape().sample_size();
  const Targets targets(op.targets, samples, outputs);
  double *first_score = losses + samples, *second_score = first_score + samples;
  const double factor = Function::kFactor * gradient_scale(op) / static_cast<double>(outputs);
  const double keep = 1.0 - static_cast<double>(op.smoothing), even = op.smoothing / static_cast<double>(outputs);
  dispatch_activation(op.predictions.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.predictions.data<T>();
    T* dinput = op.dpredictions.data<T>();
    parallel_ranges(samples, 1 + 8192 / outputs, [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t n = first; n < last; ++n) {
        const T* row = input + n * outputs;
        double sum = 0.0, absolute = 0.0, squares = 0.0, right = 0.0;
        for (std::int64_t k = 0; k < outputs; ++k) {
          const double given = targets.labels != nullptr ? (k == targets.labels[n] ? 1.0 : 0.0)
                                                         : static_cast<double>(targets.values[n * outputs + k]);
          const double p = load(row[k]), t = keep * given + even;
          sum += Function::value(p, t);
          if constexpr (std::is_same_v<Function, BinaryCrossEntropy>) {
            right += !std::isnan(p) && (p > 0.0) == (given > 0.5) ? 1.0 : 0.0;
          } else {
            absolute += std::abs(p - t);
            squares += (p - t) * (p - t);
          }
          if (dinput != nullptr) store(static_cast<float>(factor * Function::slope(p, t)), dinput + n * outputs + k);
        }
        const auto count = static_cast<double>(outputs);
        losses[n] = sum / count;
        if (targets.labels != nullptr) {
          const std::int64_t rank = rank_of(row, outputs, targets.labels[n]);
          first_score[n] = rank < 1 ? 1.0 : 0.0;
          second_score[n] = rank < 5 ? 1.0 : 0.0;
        } else if constexpr (std::is_same_v<Function, BinaryCrossEntropy>) {
          first_score[n] = right / count;
          second_score[n] = right == count ? 1.0 : 0.0;
        } else {
          first_score[n] = absolute / count;
          second_score[n] = squares / count;
        }
      }
    });
  });
  add_scores(losses, first_score, second_score, samples, op.totals.data<double>());
}

}  // namespace

void OnednnBackend::run(const ops::SoftmaxCrossEntropy& op) {
  const std::int64_t samples = op.logits.shape()[0], classes = op.logits.shape()[1], threads = omp_get_max_threads();
  const Targets targets(op.targets, samples, classes);
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
        const std::int64_t rank = rank_of(row, classes, targets.label(n));
        top1[n] = rank < 1 ? 1.0 : 0.0;
        top5[n] = rank < 5 ? 1.0 : 0.0;
        losses[n] = cross_entropy_sample(loss, row, targets, n, exps + thread * classes,
                                         dinput == nullptr ? nullptr : dinput + n * classes);
      }
    });
  });
  add_scores(losses, top1, top5, samples, op.totals.data<double>());
}

void OnednnBackend::run(const ops::ShardMaxima& op) {
  const auto* labels = op.labels.data<std::int64_t>();
  double *largest = op.maxima.data<double>(), *own = largest + op.logits.shape()[0];
  dispatch_activation(op.logits.dtype(), [&](auto type) {
    for_shard_rows<decltype(type)>(op.logits, [=, shard = op.shard](const auto* row, std::int64_t n) {
      double top = -INFINITY;
      for (std::int64_t k = 0; k < shard.count; ++k) {
        const double logit = load(row[k]);
        if (logit > top || std::isnan(logit)) top = logit;  // a NaN stays
      }
      const std::int64_t label = labels[n] - shard.first;
      largest[n] = top;
      own[n] = label >= 0 && label < shard.count ? load(row[label]) : -INFINITY;
    });
  });
}

void OnednnBackend::run(const ops::ShardSums& op) {
  const std::int64_t rows = op.logits.shape()[0];
  const auto* labels = op.labels.data<std::int64_t>();
  const double *largest = op.maxima.data<double>(), *own = largest + rows;
  double *exps = op.sums.data<double>(), *ahead = exps + rows, *logits = ahead + rows;
  dispatch_activation(op.logits.dtype(), [&](auto type) {
    for_shard_rows<decltype(type)>(op.logits, [=, shard = op.shard](const auto* row, std::int64_t n) {
      double sum_exps = 0.0, before = 0.0, sum_logits = 0.0;
      for (std::int64_t k = 0; k < shard.count; ++k) {
        const double logit = load(row[k]);
        sum_exps += std::exp(logit - largest[n]);
        sum_logits += logit;
        before += !(logit <= own[n]) || (logit == own[n] && shard.first + k < labels[n]) ? 1.0 : 0.0;
      }
      exps[n] = sum_exps;
      ahead[n] = before;
      logits[n] = sum_logits;
    });
  });
}

void OnednnBackend::run(const ops::ShardCrossEntropy& op) {
  const std::int64_t rows = op.maxima.shape()[1], first = op.first_sample;
  const auto* labels = op.labels.data<std::int64_t>();
  check_labels(labels + first, op.samples, op.shard.classes);
  const double *largest = op.maxima.data<double>(), *own = largest + rows;
  const double *exps = op.sums.data<double>(), *ahead = exps + rows, *sum_logits = ahead + rows;
  const double smoothing = op.smoothing, even = smoothing / static_cast<double>(op.shard.classes);
  double* losses = scratch(static_cast<std::size_t>(3 * op.samples));
  double *top1 = losses + op.samples, *top5 = top1 + op.samples;
  parallel_ranges(op.samples, 4096, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = first + i;
      const double log_sum = largest[n] + std::log(exps[n]);
      losses[i] = log_sum - (1.0 - smoothing) * own[n] - (smoothing == 0.0 ? 0.0 : even * sum_logits[n]);
      top1[i] = ahead[n] < 1 ? 1.0 : 0.0;
      top5[i] = ahead[n] < 5 ? 1.0 : 0.0;
    }
  });
  if (!rehearsing()) add_scores(losses, top1, top5, op.samples, op.totals.data<double>());
  if (!op.dlogits) return;
  const double scale = gradient_scale(op);
  const std::int64_t columns = op.logits.shape()[1];
  dispatch_activation(op.logits.dtype(), [&](auto type) {
    using T = decltype(type);
    T* dlogits = op.dlogits.data<T>();
    for_shard_rows<T>(op.logits, [=, shard = op.shard](const T* row, std::int64_t n) {
      T* drow = dlogits + n * columns;
      const std::int64_t classes = labels[n] < 0 ? 0 : shard.count, label = labels[n] - shard.first;
      for (std::int64_t k = 0; k < classes; ++k) {
        const double share = std::exp(static_cast<double>(load(row[k])) - largest[n]) / exps[n];
        const double target = even + (k == label ? 1.0 - smoothing : 0.0);
        store(static_cast<float>(scale * (share - target)), drow + k);
      }
      for (std::int64_t k = classes; k < columns; ++k) store(0.0F, drow + k);
    });
  });
}

void OnednnBackend::run(const ops::PointwiseLoss& op) {
  double* losses = scratch(static_cast<std::size_t>(3 * op.predictions.shape()[0]));
  dispatch_loss(op.function, [&](auto function) { pointwise_loss<decltype(function)>(op, losses); });
}

}  // namespace convoy
