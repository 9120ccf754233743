// SPDX-License-Identifier: Apache-2.0
#include "layers/conv2d.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "layers/base/error.h"
#include "layers/batch_norm2d.h"

namespace convoy {

namespace {
enum Slot { kInput, kGradient };
}

Shape Conv2d::output_shape(const Shape& input) const { return spec_.output_shape(input); }

Shape Conv2d::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  if (input.rank() != 4) fail_usage("{}: a convolution takes images [N, C, H, W], not {}", path, input.str());
  if (one_dimensional_ && input[2] != 1) {
    fail_usage("{}: takes signals [N, C, 1, L], not images {} (conv2d, or inputs [N, C, L])", path, input.str());
  }
  if (!spec_.fits(input)) {
    fail_usage("{}: kernel_size {} is larger than its input of {}x{} (larger images, or a smaller kernel or stem)",
               path, spec_.kernel.str(), input[2], input[3]);
  }
  spec_.in_channels = input[1];
  if (spec_.in_channels % spec_.groups != 0 || spec_.out_channels % spec_.groups != 0) {
    fail_usage("{}: {} input and {} output channels do not divide into {} groups (choose groups that divides both)",
               path, spec_.in_channels, spec_.out_channels, spec_.groups);
  }
  const std::int64_t inputs = spec_.in_channels / spec_.groups;
  const auto fan_in = static_cast<double>(inputs * spec_.kernel.area());
  const auto fan_out = static_cast<double>(spec_.out_channels * spec_.kernel.area());
  const Initializer init{Initializer::Kind::kNormal, static_cast<float>(std::sqrt(2.0 / fan_out))};
  weight_ =
      &context.store.declare(path + ".weight", backend_->conv2d_layout(spec_, input), init, ParameterRole::kWeight);
  if (one_dimensional_) weight_->file_shape = {spec_.out_channels, inputs, spec_.kernel.width};
  if (has_bias_) {
    bias_ = &context.store.declare(path + ".bias", backend_->vector_layout(spec_.out_channels),
                                   {Initializer::Kind::kUniform, static_cast<float>(1 / std::sqrt(fan_in))},
                                   ParameterRole::kBias);
  }
  context.flops += 2 * fan_in * static_cast<double>(output_shape(input).size());
  return output_shape(input);
}

Tensor Conv2d::forward(Activation x, Cache& cache, Mode mode, const Moments& moments) {
  if (x.shortcut) x = {x.materialize(*backend_)};
  const Weight* bias = bias_ != nullptr ? &bias_->weight : nullptr;
  Tensor y = output(output_shape(x.shape()));
  const ops::BatchNormStatistics statistics = moments.of(y);
  const ops::BatchNormStatistics* epilogue = moments.mean ? &statistics : nullptr;
  // A pending activation is stored unless both operations that read it can do without.
  const auto stays_pending = [&] {
    const ops::BatchNormApply prologue = *x.prologue();
    return backend_->fuses(ops::Conv2dForward{spec_, x.values, weight_->weight, bias, y, &prologue, epilogue}) &&
           backend_->fuses(ops::Conv2dBackwardWeight{spec_, x.values, y, weight_->weight, weight_->gradient,
                                                     ops::none(), false, &prologue});
  };
  if (x.pending && !x.values && !stays_pending()) x.values = output(x.shape());
  const auto prologue = x.prologue();
  backend_->run(
      ops::Conv2dForward{spec_, x.values, weight_->weight, bias, y, prologue ? &*prologue : nullptr, epilogue});
  if (mode == Mode::kTraining) {
    saved_input_shape(cache) = x.shape();
    if (!weight_->frozen) {
      saved(cache)[kInput] = x.values;
      if (!x.values) saved_pending(cache) = std::move(x.pending);
    }
  }
  return y;
}

Tensor Conv2d::backward_input(const Tensor& dy, Cache& cache, const Tensor& residual, BatchNorm2d* norm) {
  if (!weight_->frozen) saved(cache)[kGradient] = dy;
  if (!needs_input_gradient_) return {};
  const bool in_place = residual && !backend_->fuses_batch_norms();
  Tensor dx = in_place ? residual : output(saved_input_shape(cache));
  if (norm != nullptr) {
    if (const auto epilogue = norm->reductions(dx, cache)) {
      const ops::Conv2dBackwardInput op{spec_, dy, weight_->weight, dx, residual, &*epilogue};
      if (backend_->fuses(op)) {
        backend_->run(op);
        return dx;
      }
      norm->drop_reductions(cache);
    }
  }
  backend_->run(ops::Conv2dBackwardInput{spec_, dy, weight_->weight, dx, residual});
  return dx;
}

void Conv2d::backward_weight(Cache& cache) {
  if (weight_->frozen) return;
  auto& slots = saved(cache);
  auto& pending = saved_pending(cache);
  const bool first = weight_->take_first();
  if (bias_ != nullptr) bias_->take_first();
  const auto prologue = pending ? std::optional(pending->apply(ops::none(), ops::none())) : std::nullopt;
  backend_->run(ops::Conv2dBackwardWeight{spec_, slots[kInput], slots[kGradient], weight_->weight, weight_->gradient,
                                          bias_ != nullptr ? bias_->gradient : Tensor(), !first,
                                          prologue ? &*prologue : nullptr});
  pending.reset();
  slots[kInput].reset();
  slots[kGradient].reset();
}

}  // namespace convoy
