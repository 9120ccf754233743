// SPDX-License-Identifier: Apache-2.0
//
// Losses of the CUDA backend, in double: a block per sample, then one block for the sums. Each call adds its own sum,
// taken in a tree that depends on the number of samples only, to the totals in one addition: two microbatches added one
// after the other give the bits of the sum of their separate sums. A label that is no class is thrown by the next wait.
#include <algorithm>
#include <cmath>

#include "layers/backend/cuda/block_reduce.cuh"
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/element.cuh"

namespace convoy {

namespace {

using gpu::kThreads;
using gpu::load;
using gpu::store;

// The loss and the two scores of each sample.
struct Scores {
  double *loss, *first, *second;
  Scores(const Tensor& scratch, std::int64_t samples)
      : loss(scratch.data<double>()), first(loss + samples), second(first + samples) {}
  __device__ void set(std::int64_t n, double value, double first_score, double second_score) const {
    loss[n] = value;
    first[n] = first_score;
    second[n] = second_score;
  }
  __device__ void set_rank(std::int64_t n, double value, double rank) const {
    set(n, value, rank < 1 ? 1.0 : 0.0, rank < 5 ? 1.0 : 0.0);
  }
};

// The targets of a loss: labels or values, the other is null.
struct Targets {
  const std::int64_t* labels;
  const float* values;
  std::int64_t outputs;
  Targets(const Tensor& tensor, std::int64_t count) : labels(nullptr), values(nullptr), outputs(count) {
    if (tensor.dtype() == DType::kI64) {
      labels = tensor.data<const std::int64_t>();
    } else {
      values = tensor.data<const float>();
    }
  }
  [[nodiscard]] __device__ double at(std::int64_t n, std::int64_t k) const {
    if (labels != nullptr) return k == labels[n] ? 1.0 : 0.0;
    return static_cast<double>(values[n * outputs + k]);
  }
  // The class of sample n, found by its block: the first of the largest values.
  [[nodiscard]] __device__ std::int64_t label(std::int64_t n) const {
    if (labels != nullptr) return labels[n];
    const float* row = values + n * outputs;
    double largest = -INFINITY, first = INFINITY;
    for (std::int64_t k = threadIdx.x; k < outputs; k += blockDim.x)
      largest = fmax(largest, static_cast<double>(row[k]));
    largest = gpu::block_max(largest);
    for (std::int64_t k = threadIdx.x; k < outputs; k += blockDim.x) {
      if (static_cast<double>(row[k]) == largest) first = fmin(first, static_cast<double>(k));
    }
    first = gpu::block_min(first);
    return first < INFINITY ? static_cast<std::int64_t>(first) : 0;
  }
};

__device__ bool is_class(std::int64_t label, std::int64_t classes) { return label >= 0 && label < classes; }

// How many classes come before the target, counted by the block: greater scores, equal ones of a lower index, NaNs. A
// NaN target, or one that is no class, comes after all.
template <class T>
__device__ double rank_of(const T* scores, std::int64_t classes, std::int64_t target) {
  const float own = is_class(target, classes) ? load(scores[target]) : NAN;
  if (isnan(own)) return fmax(static_cast<double>(classes), 5.0);
  double ahead = 0.0;
  for (std::int64_t k = threadIdx.x; k < classes; k += blockDim.x) {
    const float other = load(scores[k]);
    ahead += !(other <= own) || (other == own && k < target) ? 1.0 : 0.0;
  }
  return gpu::block_sum(ahead);
}

/// What the gradient is multiplied by: a constant, and a factor in device memory unless that is null.
struct GradientScale {
  double constant;
  const float* factor;
  [[nodiscard]] __device__ double value() const {
    return factor == nullptr ? constant : constant * static_cast<double>(*factor);
  }
};

struct CrossEntropy {
  std::int64_t classes;
  double smoothing;
  GradientScale scale;
};

// The block of sample n reads its row several times, from the cache after the first.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(CrossEntropy loss, const T* logits, Targets targets, T* dlogits, Scores scores) {
  const std::int64_t n = blockIdx.x, classes = loss.classes, label = targets.label(n);
  const T* row = logits + n * classes;
  const double rank = rank_of(row, classes, label);
  double top = -INFINITY, sum_logits = 0.0, sum_exps = 0.0, total = 0.0, hard_logit = 0.0;
  for (std::int64_t k = threadIdx.x; k < classes; k += blockDim.x) top = fmax(top, static_cast<double>(load(row[k])));
  top = gpu::block_max(top);
  for (std::int64_t k = threadIdx.x; k < classes; k += blockDim.x) {
    const double logit = load(row[k]);
    sum_exps += exp(logit - top);
    sum_logits += logit;
  }
  sum_exps = gpu::block_sum(sum_exps);
  sum_logits = gpu::block_sum(sum_logits);
  if (targets.labels != nullptr) {
    total = 1.0;
    hard_logit = is_class(label, classes) ? load(row[label]) : NAN;
  } else {
    for (std::int64_t k = threadIdx.x; k < classes; k += blockDim.x) {
      const double target = targets.at(n, k);
      total += target;
      hard_logit += target * static_cast<double>(load(row[k]));
    }
    total = gpu::block_sum(total);
    hard_logit = gpu::block_sum(hard_logit);
  }
  const double even = loss.smoothing / static_cast<double>(classes);
  if (dlogits != nullptr) {
    const double scale = loss.scale.value(), sum = total + loss.smoothing * (1.0 - total);  // of the smoothed targets
    for (std::int64_t k = threadIdx.x; k < classes; k += blockDim.x) {
      const double target = even + (1.0 - loss.smoothing) * targets.at(n, k);
      const double share = exp(static_cast<double>(load(row[k])) - top) / sum_exps;
      store(static_cast<float>(scale * (share * sum - target)), dlogits + n * classes + k);
    }
  }
  if (threadIdx.x == 0) {
    const double log_sum = top + log(sum_exps), hard = total * log_sum - hard_logit;
    const double mixed = (1.0 - loss.smoothing) * hard + loss.smoothing * log_sum - even * sum_logits;
    scores.set_rank(n, loss.smoothing == 0.0 ? hard : mixed, rank);
  }
}

// The rows of logits that are divided over ranks, a block to each; logits in [rows, columns].
struct Shard {
  ClassShard classes;
  std::int64_t rows, columns;
  const std::int64_t* labels;
  Shard(const ClassShard& shard, const Tensor& logits, const Tensor& labels_)
      : classes(shard),
        rows(labels_.size()),
        columns(logits ? logits.shape()[1] : 0),
        labels(labels_.data<const std::int64_t>()) {}
};

template <class T>
__global__ void __launch_bounds__(kThreads) shard_maxima_kernel(Shard shard, const T* logits, double* maxima) {
  const std::int64_t n = blockIdx.x, label = shard.labels[n] - shard.classes.first;
  const T* row = logits + n * shard.columns;
  double top = -INFINITY, nans = 0.0;
  for (std::int64_t k = threadIdx.x; k < shard.classes.count; k += blockDim.x) {
    const double logit = load(row[k]);
    top = fmax(top, logit);
    nans += isnan(logit) ? 1.0 : 0.0;
  }
  top = gpu::block_max(top);
  nans = gpu::block_sum(nans);
  if (threadIdx.x != 0) return;
  maxima[n] = nans > 0.0 ? NAN : top;
  maxima[shard.rows + n] = is_class(label, shard.classes.count) ? load(row[label]) : -INFINITY;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    shard_sums_kernel(Shard shard, const T* logits, const double* maxima, double* sums) {
  const std::int64_t n = blockIdx.x;
  const T* row = logits + n * shard.columns;
  const double largest = maxima[n], own = maxima[shard.rows + n];
  double sum_exps = 0.0, ahead = 0.0, sum_logits = 0.0;
  for (std::int64_t k = threadIdx.x; k < shard.classes.count; k += blockDim.x) {
    const double logit = load(row[k]);
    sum_exps += exp(logit - largest);
    sum_logits += logit;
    ahead += !(logit <= own) || (logit == own && shard.classes.first + k < shard.labels[n]) ? 1.0 : 0.0;
  }
  sum_exps = gpu::block_sum(sum_exps);
  ahead = gpu::block_sum(ahead);
  sum_logits = gpu::block_sum(sum_logits);
  if (threadIdx.x != 0) return;
  sums[n] = sum_exps;
  sums[shard.rows + n] = ahead;
  sums[2 * shard.rows + n] = sum_logits;
}

// Own samples are those from `first` on, as many as there are scores.
template <class T>
__global__ void __launch_bounds__(kThreads)
    shard_cross_entropy_kernel(Shard shard, double smoothing, GradientScale scale, const T* logits,
                               const double* maxima, const double* sums, T* dlogits, std::int64_t first,
                               std::int64_t samples, Scores scores) {
  const std::int64_t n = blockIdx.x, label = shard.labels[n];
  const double largest = maxima[n], sum_exps = sums[n];
  const double even = smoothing / static_cast<double>(shard.classes.classes);
  if (dlogits != nullptr) {
    const double factor = scale.value();
    for (std::int64_t k = threadIdx.x; k < shard.columns; k += blockDim.x) {
      double gradient = 0.0;
      if (label >= 0 && k < shard.classes.count) {
        const double share = exp(static_cast<double>(load(logits[n * shard.columns + k])) - largest) / sum_exps;
        gradient = factor * (share - even - (shard.classes.first + k == label ? 1.0 - smoothing : 0.0));
      }
      store(static_cast<float>(gradient), dlogits + n * shard.columns + k);
    }
  }
  if (threadIdx.x == 0 && n >= first && n < first + samples) {
    const double log_sum = largest + log(sum_exps), own = maxima[shard.rows + n];
    const double spread = smoothing == 0.0 ? 0.0 : even * sums[2 * shard.rows + n];
    scores.set_rank(n - first, log_sum - (1.0 - smoothing) * own - spread, sums[shard.rows + n]);
  }
}

// The functions of LossFunction and their slopes over kFactor.
struct SquaredError {
  static constexpr double kFactor = 2.0;
  static constexpr bool kRegression = true;
  static __device__ double value(double p, double t) { return (p - t) * (p - t); }
  static __device__ double slope(double p, double t) { return p - t; }
};
struct AbsoluteError {
  static constexpr double kFactor = 1.0;
  static constexpr bool kRegression = true;
  static __device__ double value(double p, double t) { return fabs(p - t); }
  static __device__ double slope(double p, double t) {
    const double difference = p - t;
    return difference > 0 ? 1.0 : difference < 0 ? -1.0 : difference;  // 0 or NaN
  }
};
struct BinaryCrossEntropy {
  static constexpr double kFactor = 1.0;
  static constexpr bool kRegression = false;
  static __device__ double value(double p, double t) {
    return (p < 0.0 ? 0.0 : p) - p * t + log1p(exp(-fabs(p)));  // a NaN stays one
  }
  static __device__ double slope(double p, double t) { return 1.0 / (1.0 + exp(-p)) - t; }
};

template <class Body>
void dispatch_loss(LossFunction function, Body&& body) {
  switch (function) {
    case LossFunction::kMse: return body(SquaredError{});
    case LossFunction::kL1: return body(AbsoluteError{});
    case LossFunction::kBce: return body(BinaryCrossEntropy{});
  }
}

template <class T, class Function>
__global__ void __launch_bounds__(kThreads)
    pointwise_loss_kernel(Function /*function*/, double smoothing, GradientScale scale, const T* predictions,
                          Targets targets, T* dpredictions, Scores scores) {
  const std::int64_t n = blockIdx.x, outputs = targets.outputs;
  const T* row = predictions + n * outputs;
  const double rank = targets.labels != nullptr ? rank_of(row, outputs, targets.labels[n]) : 0.0;
  const double factor = dpredictions != nullptr ? scale.value() : 0.0;
  const double even = smoothing / static_cast<double>(outputs);
  double sum = 0.0, first = 0.0, second = 0.0;
  for (std::int64_t k = threadIdx.x; k < outputs; k += blockDim.x) {
    const double given = targets.at(n, k), t = (1.0 - smoothing) * given + even, p = load(row[k]);
    sum += Function::value(p, t);
    if constexpr (Function::kRegression) {
      first += fabs(p - t);
      second += (p - t) * (p - t);
    } else {
      first += !isnan(p) && (p > 0.0) == (given > 0.5) ? 1.0 : 0.0;
    }
    if (dpredictions != nullptr)
      store(static_cast<float>(factor * Function::slope(p, t)), dpredictions + n * outputs + k);
  }
  sum = gpu::block_sum(sum);
  first = gpu::block_sum(first);
  second = gpu::block_sum(second);
  if (threadIdx.x != 0) return;
  const auto count = static_cast<double>(outputs);
  if (targets.labels != nullptr) {
    scores.set_rank(n, sum / count, rank);
  } else {
    scores.set(n, sum / count, first / count, Function::kRegression ? second / count : first == count ? 1.0 : 0.0);
  }
}

// One block adds the scores to totals [3] and looks for the first bad label; labels may be null.
__global__ void __launch_bounds__(kThreads)
    add_scores_kernel(Scores scores, std::int64_t samples, const std::int64_t* labels, std::int64_t classes,
                      BadLabel* bad_label, double* totals) {
  double loss = 0.0, first = 0.0, second = 0.0, first_bad = INFINITY;
  for (std::int64_t n = threadIdx.x; n < samples; n += blockDim.x) {
    loss += scores.loss[n];
    first += scores.first[n];
    second += scores.second[n];
    if (labels != nullptr && !is_class(labels[n], classes)) first_bad = fmin(first_bad, static_cast<double>(n));
  }
  loss = gpu::block_sum(loss);
  first = gpu::block_sum(first);
  second = gpu::block_sum(second);
  first_bad = gpu::block_min(first_bad);
  if (threadIdx.x != 0) return;
  totals[0] += loss;
  totals[1] += first;
  totals[2] += second;
  if (first_bad < INFINITY && bad_label->seen == 0) {
    const auto sample = static_cast<std::int64_t>(first_bad);
    bad_label->label = labels[sample];
    bad_label->sample = sample;
    bad_label->classes = classes;
    __threadfence_system();
    bad_label->seen = 1;
  }
}

// Threads for the block of a sample: whole warps, and no more than it has outputs.
unsigned row_threads(std::int64_t outputs) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((outputs + 31) / 32 * 32, 32, kThreads));
}

void add_scores(const CudaState& state, const Scores& scores, std::int64_t samples, const std::int64_t* labels,
                std::int64_t classes, const Tensor& totals) {
  gpu::launch_kernel(state, 1, kThreads, add_scores_kernel, scores, samples, labels, classes, state.bad_label,
                     totals.data<double>());
}

}  // namespace

void CudaBackend::run(const ops::SoftmaxCrossEntropy& op) {
  const std::int64_t samples = op.logits.shape()[0], classes = op.logits.shape()[1];
  if (samples == 0) return;
  const Tensor scratch = tensor({3, samples}, DType::kF64);
  const Scores scores(scratch, samples);
  const Targets targets(op.targets, classes);
  gpu::dispatch_activation(op.logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch_kernel(*state_, static_cast<unsigned>(samples), row_threads(classes), cross_entropy_kernel<T>,
                       CrossEntropy{classes, op.smoothing, {op.scale, op.loss_scale.data<const float>()}},
                       op.logits.data<const T>(), targets, op.dlogits.data<T>(), scores);
  });
  add_scores(*state_, scores, samples, targets.labels, targets.outputs, op.totals);
}

void CudaBackend::run(const ops::ShardMaxima& op) {
  const Shard shard(op.shard, op.logits, op.labels);
  gpu::dispatch_activation(op.logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch_kernel(*state_, static_cast<unsigned>(shard.rows), row_threads(shard.columns), shard_maxima_kernel<T>,
                       shard, op.logits.data<const T>(), op.maxima.data<double>());
  });
}

void CudaBackend::run(const ops::ShardSums& op) {
  const Shard shard(op.shard, op.logits, op.labels);
  gpu::dispatch_activation(op.logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch_kernel(*state_, static_cast<unsigned>(shard.rows), row_threads(shard.columns), shard_sums_kernel<T>,
                       shard, op.logits.data<const T>(), op.maxima.data<const double>(), op.sums.data<double>());
  });
}

void CudaBackend::run(const ops::ShardCrossEntropy& op) {
  const Shard shard(op.shard, op.logits, op.labels);
  const Tensor scratch = tensor({3, std::max<std::int64_t>(1, op.samples)}, DType::kF64);
  const Scores scores(scratch, op.samples);
  const GradientScale scale{op.scale, op.loss_scale.data<const float>()};
  gpu::dispatch_activation(op.logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch_kernel(*state_, static_cast<unsigned>(shard.rows), row_threads(shard.columns),
                       shard_cross_entropy_kernel<T>, shard, static_cast<double>(op.smoothing), scale,
                       op.logits.data<const T>(), op.maxima.data<const double>(), op.sums.data<const double>(),
                       op.dlogits.data<T>(), op.first_sample, op.samples, scores);
  });
  add_scores(*state_, scores, op.samples, shard.labels + op.first_sample, op.shard.classes, op.totals);
}

void CudaBackend::run(const ops::PointwiseLoss& op) {
  const std::int64_t samples = op.predictions.shape()[0], outputs = op.predictions.shape().sample_size();
  if (samples == 0) return;
  const Tensor scratch = tensor({3, samples}, DType::kF64);
  const Scores scores(scratch, samples);
  const Targets targets(op.targets, outputs);
  dispatch_loss(op.function, [&](auto function) {
    using Function = decltype(function);
    const GradientScale scale{Function::kFactor * static_cast<double>(op.scale) / static_cast<double>(outputs),
                              op.loss_scale.data<const float>()};
    gpu::dispatch_activation(op.predictions.dtype(), [&](auto type) {
      using T = decltype(type);
      gpu::launch_kernel(*state_, static_cast<unsigned>(samples), row_threads(outputs),
                         pointwise_loss_kernel<T, Function>, function, static_cast<double>(op.smoothing), scale,
                         op.predictions.data<const T>(), targets, op.dpredictions.data<T>(), scores);
    });
  });
  add_scores(*state_, scores, samples, targets.labels, targets.outputs, op.totals);
}

}  // namespace convoy
