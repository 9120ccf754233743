// SPDX-License-Identifier: Apache-2.0
//
// Every operation passes on its arguments between two marks. Costs count each input and output once: an operation that
// reads a tensor twice, or one that finds it in a cache, shows as slower or faster than the memory.
#include "layers/backend/observe/profile_backend.h"

#include <fmt/format.h>

#include "layers/base/profile_range.h"

namespace convoy {

namespace {

std::string shape_text(const Tensor& x) { return x.shape().str(); }

std::string conv_text(const Conv2dSpec& spec, const Shape& input) {
  return fmt::format("{}x{} {} -> {}{}, {}", spec.kernel, spec.kernel, spec.in_channels, spec.out_channels,
                     spec.stride == 1 ? "" : fmt::format(" /{}", spec.stride), input.str());
}

std::string linear_text(const Weight& w, const Tensor& y) {
  return fmt::format("{} -> {}, batch {}", w.layout->shape()[1], w.layout->shape()[0], y.shape()[0]);
}

}  // namespace

void ProfileBackend::restart() {
  static_cast<void>(entries());
  entries_.clear();
  convolutions_.clear();
}

const std::map<ProfileKey, ProfileEntry>& ProfileBackend::entries() {
  inner_.synchronize();
  for (const Timed& timed : under_way_) timed.entry->seconds += timed.after->seconds_since(*timed.before);
  under_way_.clear();
  return entries_;
}

template <class Call>
void ProfileBackend::timed(const char* operation, const std::string& detail, const OperationCost& cost,
                           const Call& call) {
  ProfileEntry& entry = entries_[{operation, ProfileRange::innermost(), detail}];
  ++entry.calls;
  entry.cost.flops += cost.flops;
  entry.cost.bytes += cost.bytes;
  Timed& timed = under_way_.emplace_back();
  timed.entry = &entry;
  timed.before = inner_.mark();
  call();
  timed.after = inner_.mark();
}

void ProfileBackend::count(ConvolutionCall::Direction direction, const Conv2dSpec& spec, const Shape& input,
                           bool bias) {
  ++convolutions_[{direction, spec, input, bias}];
}

void ProfileBackend::copy_from_host(const void* source, const Tensor& destination) {
  timed("copy_from_host", shape_text(destination), {0, bytes_of(destination)},
        [&] { inner_.copy_from_host(source, destination); });
}

void ProfileBackend::zero(const Tensor& x) {
  timed("zero", shape_text(x), {0, bytes_of(x)}, [&] { inner_.zero(x); });
}

void ProfileBackend::refresh_compute(Weight& weight) {
  timed("refresh_compute", weight.layout->shape().str(), {0, bytes_of(weight.master, weight.compute)},
        [&] { inner_.refresh_compute(weight); });
}

void ProfileBackend::normalize_images(const Tensor& x, const Tensor& mean, const Tensor& std, const Tensor& y) {
  timed("normalize_images", shape_text(x), {0, bytes_of(x, y)}, [&] { inner_.normalize_images(x, mean, std, y); });
}

void ProfileBackend::cast(const Tensor& x, const Tensor& y) {
  timed("cast", shape_text(x), {0, bytes_of(x, y)}, [&] { inner_.cast(x, y); });
}

void ProfileBackend::flatten(const Tensor& x, const Tensor& y) {
  timed("flatten", shape_text(x), {0, bytes_of(x, y)}, [&] { inner_.flatten(x, y); });
}

void ProfileBackend::unflatten(const Tensor& dy, const Tensor& dx) {
  timed("unflatten", shape_text(dx), {0, bytes_of(dy, dx)}, [&] { inner_.unflatten(dy, dx); });
}

void ProfileBackend::linear_forward(const Tensor& x, const Weight& w, const Weight* bias, bool relu, const Tensor& y) {
  timed("linear_forward", linear_text(w, y), {linear_flops(w, y), bytes_of(x, w.compute, y)},
        [&] { inner_.linear_forward(x, w, bias, relu, y); });
}

void ProfileBackend::linear_backward_input(const Tensor& dy, const Weight& w, const Tensor& dx) {
  timed("linear_backward_input", linear_text(w, dy), {linear_flops(w, dy), bytes_of(dy, w.compute, dx)},
        [&] { inner_.linear_backward_input(dy, w, dx); });
}

void ProfileBackend::linear_backward_weight(const Tensor& x, const Tensor& dy, const Weight& w, const Tensor& dw,
                                            const Tensor& dbias, bool accumulate) {
  timed("linear_backward_weight", linear_text(w, dy), {linear_flops(w, dy), bytes_of(x, dy, dw)},
        [&] { inner_.linear_backward_weight(x, dy, w, dw, dbias, accumulate); });
}

void ProfileBackend::conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Weight& w, const Weight* bias,
                                    const Tensor& y) {
  count(ConvolutionCall::Direction::kForward, spec, x.shape(), bias != nullptr);
  timed("conv2d_forward", conv_text(spec, x.shape()), {conv2d_flops(spec, y), bytes_of(x, w.compute, y)},
        [&] { inner_.conv2d_forward(spec, x, w, bias, y); });
}

void ProfileBackend::conv2d_backward_input(const Conv2dSpec& spec, const Tensor& dy, const Weight& w,
                                           const Tensor& dx) {
  count(ConvolutionCall::Direction::kBackwardInput, spec, dx.shape(), false);
  timed("conv2d_backward_input", conv_text(spec, dx.shape()), {conv2d_flops(spec, dy), bytes_of(dy, w.backward, dx)},
        [&] { inner_.conv2d_backward_input(spec, dy, w, dx); });
}

void ProfileBackend::conv2d_backward_input_add(const Conv2dSpec& spec, const Tensor& dy, const Weight& w,
                                               const Tensor& dx) {
  count(ConvolutionCall::Direction::kBackwardInput, spec, dx.shape(), false);
  timed("conv2d_backward_input_add", conv_text(spec, dx.shape()),
        {conv2d_flops(spec, dy), bytes_of(dy, w.backward, dx, dx)},
        [&] { inner_.conv2d_backward_input_add(spec, dy, w, dx); });
}

void ProfileBackend::conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& x, const Tensor& dy, const Weight& w,
                                            const Tensor& dw, const Tensor& dbias, bool accumulate) {
  count(ConvolutionCall::Direction::kBackwardWeight, spec, x.shape(), static_cast<bool>(dbias));
  timed("conv2d_backward_weight", conv_text(spec, x.shape()), {conv2d_flops(spec, dy), bytes_of(x, dy, dw)},
        [&] { inner_.conv2d_backward_weight(spec, x, dy, w, dw, dbias, accumulate); });
}

void ProfileBackend::batch_norm_statistics(const Tensor& x, const Tensor& mean, const Tensor& variance) {
  timed("batch_norm_statistics", shape_text(x), {0, bytes_of(x)},
        [&] { inner_.batch_norm_statistics(x, mean, variance); });
}

void ProfileBackend::batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& gamma,
                                      const Tensor& beta, float epsilon, const Tensor& residual, bool relu,
                                      const Tensor& y) {
  timed("batch_norm_apply", shape_text(x), {0, bytes_of(x, residual, y)},
        [&] { inner_.batch_norm_apply(x, mean, variance, gamma, beta, epsilon, residual, relu, y); });
}

Tensor ProfileBackend::batch_norm_apply_relu(const Tensor& x, const Tensor& mean, const Tensor& variance,
                                             const Tensor& gamma, const Tensor& beta, float epsilon,
                                             const Tensor& residual, const Tensor& y) {
  Tensor mask;
  timed("batch_norm_apply", shape_text(x), {0, bytes_of(x, residual, y)},
        [&] { mask = inner_.batch_norm_apply_relu(x, mean, variance, gamma, beta, epsilon, residual, y); });
  return mask;
}

void ProfileBackend::batch_norm_backward_reduce(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                                const Tensor& variance, float epsilon, const Tensor& dgamma,
                                                const Tensor& dbeta) {
  timed("batch_norm_backward_reduce", shape_text(x), {0, bytes_of(dy, x, y)},
        [&] { inner_.batch_norm_backward_reduce(dy, x, y, mean, variance, epsilon, dgamma, dbeta); });
}

void ProfileBackend::batch_norm_backward_apply(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                               const Tensor& variance, const Tensor& gamma, const Tensor& dgamma,
                                               const Tensor& dbeta, double count, float epsilon, const Tensor& dx) {
  timed("batch_norm_backward_apply", shape_text(x), {0, bytes_of(dy, x, y, dx)},
        [&] { inner_.batch_norm_backward_apply(dy, x, y, mean, variance, gamma, dgamma, dbeta, count, epsilon, dx); });
}

void ProfileBackend::batch_norm_backward_residual(const Tensor& dy, const Tensor& y, const Tensor& dresidual) {
  timed("batch_norm_backward_addend", shape_text(dy), {0, bytes_of(dy, y, dresidual, dresidual)},
        [&] { inner_.batch_norm_backward_residual(dy, y, dresidual); });
}

void ProfileBackend::relu_forward(const Tensor& x, const Tensor& y) {
  timed("relu_forward", shape_text(x), {0, bytes_of(x, y)}, [&] { inner_.relu_forward(x, y); });
}

void ProfileBackend::relu_backward(const Tensor& dy, const Tensor& y, const Tensor& dx) {
  timed("relu_backward", shape_text(dy), {0, bytes_of(dy, y, dx)}, [&] { inner_.relu_backward(dy, y, dx); });
}

void ProfileBackend::add(const Tensor& x, const Tensor& y) {
  timed("add", shape_text(x), {0, bytes_of(x, y, y)}, [&] { inner_.add(x, y); });
}

void ProfileBackend::scale(float factor, const Tensor& x) {
  timed("scale", shape_text(x), {0, bytes_of(x, x)}, [&] { inner_.scale(factor, x); });
}

void ProfileBackend::axpy(float scale, const Tensor& x, const Tensor& y) {
  timed("axpy", shape_text(x), {0, bytes_of(x, y, y)}, [&] { inner_.axpy(scale, x, y); });
}

void ProfileBackend::max_pool_forward(const PoolSpec& spec, const Tensor& x, const Tensor& y, const Tensor& argmax) {
  timed("max_pool_forward", shape_text(x), {0, bytes_of(x, y, argmax)},
        [&] { inner_.max_pool_forward(spec, x, y, argmax); });
}

void ProfileBackend::max_pool_backward(const PoolSpec& spec, const Tensor& dy, const Tensor& argmax, const Tensor& dx) {
  timed("max_pool_backward", shape_text(dx), {0, bytes_of(dy, argmax, dx)},
        [&] { inner_.max_pool_backward(spec, dy, argmax, dx); });
}

void ProfileBackend::global_avg_pool_forward(const Tensor& x, const Tensor& y) {
  timed("global_avg_pool_forward", shape_text(x), {0, bytes_of(x, y)}, [&] { inner_.global_avg_pool_forward(x, y); });
}

void ProfileBackend::global_avg_pool_backward(const Tensor& dy, const Tensor& dx) {
  timed("global_avg_pool_backward", shape_text(dx), {0, bytes_of(dy, dx)},
        [&] { inner_.global_avg_pool_backward(dy, dx); });
}

void ProfileBackend::softmax_cross_entropy(const Tensor& logits, const Tensor& labels, float smoothing, float scale,
                                           const Tensor& dlogits, const Tensor& totals) {
  timed("softmax_cross_entropy", shape_text(logits), {0, bytes_of(logits, dlogits)},
        [&] { inner_.softmax_cross_entropy(logits, labels, smoothing, scale, dlogits, totals); });
}

void ProfileBackend::mse(const Tensor& predictions, const Tensor& targets, float scale, const Tensor& dpredictions,
                         const Tensor& totals) {
  timed("mse", shape_text(predictions), {0, bytes_of(predictions, targets, dpredictions)},
        [&] { inner_.mse(predictions, targets, scale, dpredictions, totals); });
}

void ProfileBackend::sgd_update(const SgdUpdate& update, const Tensor& values, const Tensor& gradients,
                                const Tensor& momentum) {
  timed("sgd_update", shape_text(values), {0, bytes_of(values, values, gradients, momentum, momentum)},
        [&] { inner_.sgd_update(update, values, gradients, momentum); });
}

void ProfileBackend::adamw_update(const AdamwUpdate& update, const Tensor& values, const Tensor& gradients,
                                  const Tensor& first_moment, const Tensor& second_moment) {
  timed("adamw_update", shape_text(values),
        {0, bytes_of(values, values, gradients, first_moment, first_moment, second_moment, second_moment)},
        [&] { inner_.adamw_update(update, values, gradients, first_moment, second_moment); });
}

void ProfileBackend::lars_update(const LarsUpdate& update, std::span<const Segment> segments, const Tensor& values,
                                 const Tensor& gradients, const Tensor& momentum) {
  timed("lars_update", shape_text(values), {0, bytes_of(values, values, gradients, momentum, momentum)},
        [&] { inner_.lars_update(update, segments, values, gradients, momentum); });
}

}  // namespace convoy
