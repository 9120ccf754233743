// SPDX-License-Identifier: Apache-2.0
#include "layers/batch_norm2d.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr float kEpsilon = 1e-5F;
enum Slot { kInput, kReluMask, kMean, kVariance };

}  // namespace

Shape BatchNorm2d::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  if (input.rank() != 4 && input.rank() != 2) {
    fail_usage("{}: batch norm takes [N, C, H, W] or [N, C], not {}", path, input.str());
  }
  path_ = path;
  channels_ = input[1];
  reducer_ = context.reducer;
  weight_ = &context.store.declare(path + ".weight", backend_->vector_layout(channels_),
                                   {Initializer::Kind::kConstant, initial_weight_}, false);
  bias_ = &context.store.declare(path + ".bias", backend_->vector_layout(channels_), {}, false);
  running_ = &context.store.declare_statistics(path, channels_);
  host_.resize(static_cast<std::size_t>(2 * channels_ + 1));
  return input;
}

// Replaces this replica's mean and biased variance by those over all replicas: sums of count, count * mean and
// count * (variance + mean^2) in float64, so that the subtraction loses nothing that float32 could hold.
void BatchNorm2d::reduce_statistics(double count, const Tensor& mean, const Tensor& variance) {
  const auto c = static_cast<std::size_t>(channels_);
  std::vector<float> m(c), v(c);
  backend_->copy_to_host(mean, m.data());
  backend_->copy_to_host(variance, v.data());
  for (std::size_t i = 0; i < c; ++i) {
    host_[i] = count * m[i];
    host_[c + i] = count * (static_cast<double>(v[i]) + static_cast<double>(m[i]) * m[i]);
  }
  host_[2 * c] = count;
  reducer_->sum(host_);
  for (std::size_t i = 0; i < c; ++i) {
    const double mean_all = host_[i] / host_[2 * c];
    m[i] = static_cast<float>(mean_all);
    v[i] = static_cast<float>(std::max(0.0, host_[c + i] / host_[2 * c] - mean_all * mean_all));
  }
  backend_->copy_from_host(m.data(), mean);
  backend_->copy_from_host(v.data(), variance);
}

Activation BatchNorm2d::normalized(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& residual,
                                   Cache& cache, Mode mode) {
  Tensor* mask = relu_ && mode == Mode::kTraining ? &saved(cache)[kReluMask] : nullptr;
  return {output(x.shape()), Activation::Pending{x, mean, variance, weight_->weight.master, bias_->weight.master,
                                                 kEpsilon, residual, relu_, mask}};
}

Tensor BatchNorm2d::forward(const Tensor& x, Cache& cache, Mode mode) {
  const Moments set = moments(cache, mode);
  if (set.mean) backend_->run(set.of(x));
  return forward_pending(x, Tensor(), cache, mode).materialize(*backend_);
}

Moments BatchNorm2d::moments(Cache& cache, Mode mode) {
  if (mode == Mode::kEvaluation || running_->frozen) return {};
  auto& slots = saved(cache);
  slots[kMean] = backend_->tensor({channels_}, DType::kF32);
  slots[kVariance] = backend_->tensor({channels_}, DType::kF32);
  if (reducer_ != nullptr) return {slots[kMean], slots[kVariance]};
  return {slots[kMean], slots[kVariance], running_->step_mean, running_->step_variance, cache.share};
}

Activation BatchNorm2d::forward_pending(const Tensor& x, const Tensor& residual, Cache& cache, Mode mode) {
  if (mode == Mode::kEvaluation || running_->frozen) {
    return normalized(x, running_->mean, running_->variance, residual, cache, mode);
  }
  auto& slots = saved(cache);
  auto count = static_cast<double>(values_per_channel(x));
  if (reducer_ != nullptr) {
    reduce_statistics(count, slots[kMean], slots[kVariance]);
    count = host_.back();
  }
  if (count < 2) {
    fail(
        "{}: batch norm needs more than one value per channel in training, and this batch has one (a larger batch, "
        "larger images, or data.drop_last = true)",
        path_);
  }
  if (reducer_ != nullptr) {  // else the moments have been added by the operation that computed them
    backend_->run(ops::Axpy{cache.share, slots[kMean], running_->step_mean});
    backend_->run(ops::Axpy{ops::unbiased_share(cache.share, count), slots[kVariance], running_->step_variance});
  }
  slots[kInput] = x;
  return normalized(x, slots[kMean], slots[kVariance], residual, cache, mode);
}

// With statistics that do not depend on x: dx = gamma / sqrt(variance + epsilon) * g. The terms of the two sums, zero
// here, are the only ones that look at x, so dy stands in for it and the input need not be kept.
Tensor BatchNorm2d::backward_frozen(const Tensor& mask, const Tensor& dy) {
  const Tensor sums = backend_->tensor({channels_}, DType::kF32);
  backend_->zero(sums);
  Tensor dx = output(dy.shape());
  backend_->run(ops::BatchNormBackwardApply{dy, dy, mask, running_->mean, running_->variance, weight_->weight.master,
                                            sums, sums, 1, kEpsilon, dx});
  return dx;
}

Tensor BatchNorm2d::mask(Cache& cache) const { return saved(cache)[kReluMask]; }

Tensor BatchNorm2d::backward_through(const Tensor& mask, const Tensor& dy, Cache& cache) {
  auto& slots = saved(cache);
  slots[kReluMask].reset();
  if (running_->frozen) return backward_frozen(mask, dy);
  const Tensor& x = slots[kInput];
  Tensor dgamma = backend_->tensor({channels_}, DType::kF32), dbeta = backend_->tensor({channels_}, DType::kF32);
  const bool first = weight_->take_first();
  bias_->take_first();
  backend_->run(ops::BatchNormBackwardReduce{dy, x, mask, slots[kMean], slots[kVariance], kEpsilon, dgamma, dbeta,
                                             weight_->gradient, bias_->gradient, !first});
  auto count = static_cast<double>(values_per_channel(x));
  if (reducer_ != nullptr) {  // the input's gradient needs the sums over all replicas, the parameters' only our own
    const auto c = static_cast<std::size_t>(channels_);
    std::vector<float> sums(2 * c);
    backend_->copy_to_host(dgamma, sums.data());
    backend_->copy_to_host(dbeta, sums.data() + c);
    std::copy(sums.begin(), sums.end(), host_.begin());
    host_.back() = count;
    reducer_->sum(host_);
    count = host_.back();
    std::transform(host_.begin(), host_.end() - 1, sums.begin(), [](double s) { return static_cast<float>(s); });
    dgamma = backend_->tensor({channels_}, DType::kF32);
    dbeta = backend_->tensor({channels_}, DType::kF32);
    backend_->copy_from_host(sums.data(), dgamma);
    backend_->copy_from_host(sums.data() + c, dbeta);
  }
  Tensor dx = in_place_of(x);
  backend_->run(ops::BatchNormBackwardApply{dy, x, mask, slots[kMean], slots[kVariance], weight_->weight.master, dgamma,
                                            dbeta, count, kEpsilon, dx});
  slots[kInput].reset();
  slots[kMean].reset();
  slots[kVariance].reset();
  return dx;
}

}  // namespace convoy
