// SPDX-License-Identifier: Apache-2.0
#include "layers/batch_norm2d.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layers/base/error.h"
#include "layers/base/rehearsal.h"

namespace convoy {

namespace {

constexpr float kEpsilon = 1e-5F;
enum Slot { kInput, kReluMask, kDgamma, kDbeta, kMean = Cache::kStatistics, kVariance, kCoefficients, kRounded };

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
                                   {Initializer::Kind::kConstant, initial_weight_}, ParameterRole::kNormWeight);
  bias_ = &context.store.declare(path + ".bias", backend_->vector_layout(channels_), {}, ParameterRole::kNormBias);
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

bool BatchNorm2d::fused() const { return backend_->fuses_batch_norms() && reducer_ == nullptr && !running_->frozen; }

Activation BatchNorm2d::normalized(const Tensor& x, const Tensor& mean, const Tensor& variance,
                                   const Activation& shortcut, Cache& cache, Mode mode) {
  auto& slots = saved(cache);
  const bool adds = shortcut.values || shortcut.pending;
  const bool keeps_mask = adds || running_->frozen || !backend_->recomputes_relu_masks();
  PendingNorm norm{x, mean, variance, weight_->weight.master, bias_->weight.master, kEpsilon, relu_};
  if (mode == Mode::kTraining) {
    norm.mask = relu_ && keeps_mask ? &slots[kReluMask] : nullptr;
    norm.coefficients = slots[kCoefficients];
    norm.rounded = slots[kRounded];
  }
  return {Tensor(), std::move(norm), shortcut.values, shortcut.pending};
}

Tensor BatchNorm2d::forward(const Tensor& x, Cache& cache, Mode mode) {
  const Moments set = moments(cache, mode);
  if (set.mean) backend_->run(set.of(x));
  return forward_pending(x, {}, cache, mode).materialize(*backend_);
}

Moments BatchNorm2d::moments(Cache& cache, Mode mode) {
  if (mode == Mode::kEvaluation || running_->frozen) return {};
  const bool second = cache.pass == Cache::Pass::kSecond;
  // A convolution that computes them with its output may compute another output without them: in a second forward of
  // the microbatch they go to memory that nobody reads. Elsewhere they are not computed again.
  if (second && !backend_->fuses_batch_norms()) return {};
  Moments set{backend_->tensor({channels_}, DType::kF32), backend_->tensor({channels_}, DType::kF32)};
  set.pivot = running_->mean;
  if (reducer_ == nullptr && !second) {
    set.step_mean = running_->step_mean;
    set.step_variance = running_->step_variance;
    set.share = cache.share;
  }
  if (fused()) {
    set.gamma = weight_->weight.master;
    set.beta = bias_->weight.master;
    set.epsilon = kEpsilon;
    set.coefficients = backend_->tensor({4, channels_}, DType::kF32);
    set.rounded = backend_->tensor({2, channels_}, backend_->compute_type());
  }
  if (!second) {
    auto& slots = saved(cache);
    slots[kMean] = set.mean;
    slots[kVariance] = set.variance;
    slots[kCoefficients] = set.coefficients;
    slots[kRounded] = set.rounded;
  }
  return set;
}

Activation BatchNorm2d::forward_pending(const Tensor& x, const Activation& shortcut, Cache& cache, Mode mode) {
  if (mode == Mode::kEvaluation || running_->frozen) {
    return normalized(x, running_->mean, running_->variance, shortcut, cache, mode);
  }
  auto& slots = saved(cache);
  slots[kInput] = x;
  if (cache.pass == Cache::Pass::kSecond) return normalized(x, slots[kMean], slots[kVariance], shortcut, cache, mode);
  auto count = static_cast<double>(values_per_channel(x));
  if (reducer_ != nullptr) {
    reduce_statistics(count, slots[kMean], slots[kVariance]);
    count = host_.back();
  }
  if (count < 2) {
    const std::string message = path_ +
                                ": batch norm needs more than one value per channel in training, and this batch has "
                                "one (raise train.global_batch_size, lower parallel.microbatches, take larger images, "
                                "or set data.drop_last = true)";
    throw Error(message, rehearsing() ? ExitCode::kUsage : ExitCode::kFailure);
  }
  if (reducer_ != nullptr) {  // else the moments have been added by the operation that computed them
    backend_->run(ops::Axpy{cache.share, slots[kMean], running_->step_mean});
    backend_->run(ops::Axpy{ops::unbiased_share(cache.share, count), slots[kVariance], running_->step_variance});
  }
  return normalized(x, slots[kMean], slots[kVariance], shortcut, cache, mode);
}

// With statistics that do not depend on x: dx = gamma / sqrt(variance + epsilon) * g. The terms of the two sums, zero
// here, are the only ones that look at x, so dy stands in for it and the input need not be kept.
Tensor BatchNorm2d::backward_frozen(const OutputGradient& gradient) {
  const Tensor sums = backend_->tensor({channels_}, DType::kF32);
  backend_->zero(sums);
  const Tensor& dy = gradient.dy;
  Tensor dx = output(dy.shape());
  backend_->run(ops::BatchNormBackwardApply{dy, dy, gradient.mask, running_->mean, running_->variance,
                                            weight_->weight.master, bias_->weight.master, sums, sums, 1, kEpsilon,
                                            false, dx});
  return dx;
}

Tensor BatchNorm2d::mask(Cache& cache) const { return saved(cache)[kReluMask]; }
void BatchNorm2d::set_mask(Cache& cache, Tensor mask) { saved(cache)[kReluMask] = std::move(mask); }

void BatchNorm2d::make_sums(Cache& cache, const Tensor& memory) {
  saved(cache)[kDgamma] = memory.view(0, {channels_});
  saved(cache)[kDbeta] = memory.view(channels_, {channels_});
}

ops::BatchNormBackwardReduce BatchNorm2d::reduce(Cache& cache, const Tensor& dy, const Tensor& mask, bool recompute,
                                                 const Tensor& masked) {
  auto& slots = saved(cache);
  return {dy,
          slots[kInput],
          mask,
          slots[kMean],
          slots[kVariance],
          weight_->weight.master,
          bias_->weight.master,
          kEpsilon,
          recompute,
          slots[kDgamma],
          slots[kDbeta],
          false,
          masked,
          slots[kCoefficients]};
}

std::optional<ops::BatchNormBackwardReduce> BatchNorm2d::reductions(const Tensor& dx, Cache& cache) {
  if (!fused()) return std::nullopt;
  make_sums(cache, backend_->zeros({2, channels_}, DType::kF32));
  const Tensor& mask = saved(cache)[kReluMask];
  std::optional<ops::BatchNormBackwardReduce> op(reduce(cache, dx, mask, relu_ && !mask, dx));
  op->accumulate = true;
  return op;
}

void BatchNorm2d::drop_reductions(Cache& cache) {
  saved(cache)[kDgamma].reset();
  saved(cache)[kDbeta].reset();
}

BatchNorm2d::OutputGradient BatchNorm2d::output_gradient(const Tensor& dy, Cache& cache) {
  auto& slots = saved(cache);
  OutputGradient gradient{dy};
  const Tensor mask = std::move(slots[kReluMask]);
  slots[kReluMask].reset();
  if (slots[kDgamma]) return gradient;  // reductions() were computed with dy
  gradient.mask = mask;
  gradient.recompute = relu_ && !mask;
  if (!mask || !fused()) return gradient;
  // The mask is that of a residual, whose gradient is the masked one as well.
  make_sums(cache, backend_->tensor({2, channels_}, DType::kF32));
  const Tensor masked = output(dy.shape());
  backend_->run(reduce(cache, dy, mask, false, masked));
  return {masked};
}

// Replaces the sums of this replica by those over all replicas, which the gradient of the input needs.
void BatchNorm2d::reduce_gradients(double count, Tensor& dgamma, Tensor& dbeta) {
  const auto c = static_cast<std::size_t>(channels_);
  std::vector<float> sums(2 * c);
  backend_->copy_to_host(dgamma, sums.data());
  backend_->copy_to_host(dbeta, sums.data() + c);
  std::copy(sums.begin(), sums.end(), host_.begin());
  host_.back() = count;
  reducer_->sum(host_);
  std::transform(host_.begin(), host_.end() - 1, sums.begin(), [](double s) { return static_cast<float>(s); });
  dgamma = backend_->tensor({channels_}, DType::kF32);
  dbeta = backend_->tensor({channels_}, DType::kF32);
  backend_->copy_from_host(sums.data(), dgamma);
  backend_->copy_from_host(sums.data() + c, dbeta);
}

Tensor BatchNorm2d::backward_through(const OutputGradient& gradient, Cache& cache) {
  if (running_->frozen) return backward_frozen(gradient);
  auto& slots = saved(cache);
  if (!slots[kDgamma]) {
    make_sums(cache, backend_->tensor({2, channels_}, DType::kF32));
    ops::BatchNormBackwardReduce op = reduce(cache, gradient.dy, gradient.mask, gradient.recompute, ops::none());
    op.prologue = gradient.pool;
    backend_->run(op);
  }
  const bool accumulate = !weight_->take_first();
  bias_->take_first();
  const Tensor& x = slots[kInput];
  Tensor dgamma = slots[kDgamma], dbeta = slots[kDbeta];
  Tensor gamma_gradient = weight_->gradient, beta_gradient = bias_->gradient;
  auto count = static_cast<double>(values_per_channel(x));
  if (reducer_ != nullptr) {  // the gradients of the parameters are the sums of this replica
    backend_->set_or_add(dgamma, accumulate, gamma_gradient);
    backend_->set_or_add(dbeta, accumulate, beta_gradient);
    gamma_gradient.reset();
    beta_gradient.reset();
    reduce_gradients(count, dgamma, dbeta);
    count = host_.back();
  }
  Tensor dx = in_place_of(x);
  backend_->run(ops::BatchNormBackwardApply{gradient.dy, x, gradient.mask, slots[kMean], slots[kVariance],
                                            weight_->weight.master, bias_->weight.master, dgamma, dbeta, count,
                                            kEpsilon, gradient.recompute, dx, gamma_gradient, beta_gradient, accumulate,
                                            gradient.pool});
  for (Tensor& slot : slots) slot.reset();
  return dx;
}

}  // namespace convoy
