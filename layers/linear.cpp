// SPDX-License-Identifier: Apache-2.0
#include "layers/linear.h"

#include <cmath>
#include <string>

#include "layers/base/error.h"

namespace convoy {

namespace {
enum Slot { kInput, kOutput, kGradient };
}

Shape Linear::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  if (input.rank() != 2) {
    fail_usage("{}: a linear layer takes [N, features], not {} (put flatten or global_avg_pool before it)", path,
               input.str());
  }
  in_ = input[1];
  const float bound = 1.0F / std::sqrt(static_cast<float>(in_));
  const Initializer init{Initializer::Kind::kUniform, bound};
  weight_ = &context.store.declare(path + ".weight", backend_->linear_layout(in_, out_, input[0]), init,
                                   ParameterRole::kWeight);
  if (has_bias_) {
    bias_ = &context.store.declare(path + ".bias", backend_->vector_layout(out_), init, ParameterRole::kBias);
  }
  context.flops += 2.0 * static_cast<double>(input[0] * in_ * out_);
  return output_shape(input);
}

Tensor Linear::forward(const Tensor& x, Cache& cache, Mode mode) {
  Tensor y = output(output_shape(x.shape()));
  backend_->run(ops::LinearForward{x, weight_->weight, bias_ != nullptr ? &bias_->weight : nullptr, relu_, y});
  if (mode == Mode::kTraining) {
    if (!weight_->frozen) saved(cache)[kInput] = x;
    if (relu_) saved(cache)[kOutput] = y;
  }
  return y;
}

Tensor Linear::backward_input(const Tensor& dy, Cache& cache) {
  auto& slots = saved(cache);
  Tensor gradient = dy;
  if (relu_) {
    gradient = in_place_of(slots[kOutput]);
    backend_->run(ops::ReluBackward{dy, slots[kOutput], gradient});
    slots[kOutput].reset();
  }
  if (!weight_->frozen) slots[kGradient] = gradient;
  if (!needs_input_gradient_) return {};
  Tensor dx = output({dy.shape()[0], in_});
  backend_->run(ops::LinearBackwardInput{gradient, weight_->weight, dx});
  return dx;
}

void Linear::backward_weight(Cache& cache) {
  if (weight_->frozen) return;
  auto& slots = saved(cache);
  const bool first = weight_->take_first();
  if (bias_ != nullptr) bias_->take_first();
  backend_->run(ops::LinearBackwardWeight{slots[kInput], slots[kGradient], weight_->weight, weight_->gradient,
                                          bias_ != nullptr ? bias_->gradient : Tensor(), !first});
  slots[kInput].reset();
  slots[kGradient].reset();
}

}  // namespace convoy
