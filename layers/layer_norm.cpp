// SPDX-License-Identifier: Apache-2.0
#include "layers/layer_norm.h"

#include <string>

#include "layers/base/error.h"

namespace convoy {

namespace {
enum Slot { kInput, kMean, kInverseStd, kGradient };
}

Shape LayerNorm::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  if (input.rank() < 2) fail_usage("{}: layer norm takes [N, C] or [N, C, H, W], not {}", path, input.str());
  weight_ = &context.store.declare(path + ".weight", backend_->vector_layout(input[1]),
                                   {Initializer::Kind::kConstant, 1}, ParameterRole::kNormWeight);
  bias_ = &context.store.declare(path + ".bias", backend_->vector_layout(input[1]), {}, ParameterRole::kNormBias);
  return input;
}

Tensor LayerNorm::forward(const Tensor& x, Cache& cache, Mode mode) {
  const Shape rows{x.shape()[0] * x.shape().pixels()};
  const Tensor mean = backend_->tensor(rows, DType::kF32), inverse_std = backend_->tensor(rows, DType::kF32);
  Tensor y = output(x.shape());
  backend_->run(ops::LayerNormForward{x, weight_->weight.master, bias_->weight.master, epsilon_, y, mean, inverse_std});
  if (mode == Mode::kTraining) {
    auto& slots = saved(cache);
    slots[kInput] = x;
    slots[kMean] = mean;
    slots[kInverseStd] = inverse_std;
  }
  return y;
}

Tensor LayerNorm::backward_input(const Tensor& dy, Cache& cache) {
  auto& slots = saved(cache);
  slots[kGradient] = dy;
  Tensor dx;
  if (needs_input_gradient_) {
    dx = output(dy.shape());
    backend_->run(
        ops::LayerNormBackwardInput{dy, slots[kInput], weight_->weight.master, slots[kMean], slots[kInverseStd], dx});
  }
  if (weight_->frozen) slots.fill({});
  return dx;
}

void LayerNorm::backward_weight(Cache& cache) {
  if (weight_->frozen) return;
  auto& slots = saved(cache);
  const bool first = weight_->take_first();
  bias_->take_first();
  backend_->run(ops::LayerNormBackwardWeight{slots[kGradient], slots[kInput], slots[kMean], slots[kInverseStd],
                                             weight_->gradient, bias_->gradient, !first});
  slots.fill({});
}

}  // namespace convoy
