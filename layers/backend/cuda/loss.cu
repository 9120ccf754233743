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

// Of each sample. With float targets top1 holds the absolute error.
struct Scores {
  double *loss, *top1, *top5;
  Scores(const Tensor& scratch, std::int64_t samples)
      : loss(scratch.data<double>()), top1(loss + samples), top5(top1 + samples) {}
  __device__ void set(std::int64_t n, double value, double rank) const {
    loss[n] = value;
    top1[n] = rank < 1 ? 1.0 : 0.0;
    top5[n] = rank < 5 ? 1.0 : 0.0;
  }
  __device__ void set_regression(std::int64_t n, double value, double absolute) const {
    loss[n] = value;
    top1[n] = absolute;
    top5[n] = 0.0;
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

// The block of sample n reads its row three times, from the cache after the first.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(CrossEntropy loss, const T* logits, const std::int64_t* labels, T* dlogits, Scores scores) {
  const std::int64_t n = blockIdx.x, label = labels[n], classes = loss.classes;
  const T* row = logits + n * classes;
  const double rank = rank_of(row, classes, label);
  const double own = is_class(label, classes) ? load(row[label]) : NAN;
  double top = -INFINITY, sum_logits = 0.0, sum_exps = 0.0;
  for (std::int64_t k = threadIdx.x; k < classes; k += blockDim.x) top = fmax(top, static_cast<double>(load(row[k])));
  top = gpu::block_max(top);
  for (std::int64_t k = threadIdx.x; k < classes; k += blockDim.x) {
    const double logit = load(row[k]);
    sum_exps += exp(logit - top);
    sum_logits += logit;
  }
  sum_exps = gpu::block_sum(sum_exps);
  sum_logits = gpu::block_sum(sum_logits);
  const double even = loss.smoothing / static_cast<double>(classes);
  if (dlogits != nullptr) {
    const double scale = loss.scale.value();
    for (std::int64_t k = threadIdx.x; k < classes; k += blockDim.x) {
      const double wanted = even + (k == label ? 1.0 - loss.smoothing : 0.0);
      const double share = exp(static_cast<double>(load(row[k])) - top) / sum_exps;
      store(static_cast<float>(scale * (share - wanted)), dlogits + n * classes + k);
    }
  }
  if (threadIdx.x == 0) {
    const double log_sum = top + log(sum_exps), hard = log_sum - own;
    const double mixed = (1.0 - loss.smoothing) * hard + loss.smoothing * log_sum - even * sum_logits;
    scores.set(n, loss.smoothing == 0.0 ? hard : mixed, rank);
  }
}

// Of `labels` (one-hot) and `values`, one is null.
template <class T>
__global__ void __launch_bounds__(kThreads)
    mse_kernel(std::int64_t outputs, GradientScale scale, const T* predictions, const std::int64_t* labels,
               const float* values, T* dpredictions, Scores scores) {
  const std::int64_t n = blockIdx.x, label = labels != nullptr ? labels[n] : -1;
  const T* row = predictions + n * outputs;
  const double rank = labels != nullptr ? rank_of(row, outputs, label) : 5.0;
  const double slope = dpredictions != nullptr ? scale.value() : 0.0;
  double sum = 0.0, absolute = 0.0;
  for (std::int64_t k = threadIdx.x; k < outputs; k += blockDim.x) {
    const double wanted = labels != nullptr ? (k == label ? 1.0 : 0.0) : static_cast<double>(values[n * outputs + k]);
    const double difference = static_cast<double>(load(row[k])) - wanted;
    sum += difference * difference;
    absolute += fabs(difference);
    if (dpredictions != nullptr) store(static_cast<float>(slope * difference), dpredictions + n * outputs + k);
  }
  sum = gpu::block_sum(sum);
  absolute = gpu::block_sum(absolute);
  if (threadIdx.x != 0) return;
  if (labels != nullptr) {
    scores.set(n, sum / static_cast<double>(outputs), rank);
  } else {
    scores.set_regression(n, sum / static_cast<double>(outputs), absolute / static_cast<double>(outputs));
  }
}

// One block adds the scores to totals [3] and looks for the first bad label; labels may be null.
__global__ void __launch_bounds__(kThreads)
    add_scores_kernel(Scores scores, std::int64_t samples, const std::int64_t* labels, std::int64_t classes,
                      BadLabel* bad_label, double* totals) {
  double loss = 0.0, top1 = 0.0, top5 = 0.0, first_bad = INFINITY;
  for (std::int64_t n = threadIdx.x; n < samples; n += blockDim.x) {
    loss += scores.loss[n];
    top1 += scores.top1[n];
    top5 += scores.top5[n];
    if (labels != nullptr && !is_class(labels[n], classes)) first_bad = fmin(first_bad, static_cast<double>(n));
  }
  loss = gpu::block_sum(loss);
  top1 = gpu::block_sum(top1);
  top5 = gpu::block_sum(top5);
  first_bad = gpu::block_min(first_bad);
  if (threadIdx.x != 0) return;
  totals[0] += loss;
  totals[1] += top1;
  totals[2] += top5;
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
  const auto* targets = op.labels.data<std::int64_t>();
  gpu::dispatch_activation(op.logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch_kernel(*state_, static_cast<unsigned>(samples), row_threads(classes), cross_entropy_kernel<T>,
                       CrossEntropy{classes, op.smoothing, {op.scale, op.loss_scale.data<const float>()}},
                       op.logits.data<const T>(), targets, op.dlogits.data<T>(), scores);
  });
  add_scores(*state_, scores, samples, targets, classes, op.totals);
}

void CudaBackend::run(const ops::Mse& op) {
  const std::int64_t samples = op.predictions.shape()[0], outputs = op.predictions.shape().sample_size();
  if (samples == 0) return;
  const Tensor scratch = tensor({3, samples}, DType::kF64);
  const Scores scores(scratch, samples);
  const bool one_hot = op.targets.dtype() == DType::kI64;
  const auto* labels = one_hot ? op.targets.data<const std::int64_t>() : nullptr;
  const auto* values = one_hot ? nullptr : op.targets.data<const float>();
  const GradientScale scale{2.0 * static_cast<double>(op.scale) / static_cast<double>(outputs),
                            op.loss_scale.data<const float>()};
  gpu::dispatch_activation(op.predictions.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch_kernel(*state_, static_cast<unsigned>(samples), row_threads(outputs), mse_kernel<T>, outputs, scale,
                       op.predictions.data<const T>(), labels, values, op.dpredictions.data<T>(), scores);
  });
  add_scores(*state_, scores, samples, labels, outputs, op.totals);
}

}  // namespace convoy
