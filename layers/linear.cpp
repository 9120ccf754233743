// SPDX-License-Identifier: Apache-2.0
#include "layers/linear.h"

#include <cmath>
#include <string>
#include <utility>

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
  if (!relu_) head_ = std::exchange(context.head, nullptr);
  const int shards = head_ != nullptr ? head_->shards() : 1;
  columns_ = shard_columns(out_, shards);
  const float bound = 1.0F / std::sqrt(static_cast<float>(in_));
  const Initializer init{Initializer::Kind::kUniform, bound};
  weight_ = &context.store.declare(path + ".weight", backend_->linear_layout(in_, columns_, shards * input[0]), init,
                                   ParameterRole::kWeight);
  if (has_bias_) {
    bias_ = &context.store.declare(path + ".bias", backend_->vector_layout(columns_), init, ParameterRole::kBias);
  }
  if (head_ != nullptr) {
    const ClassShard shard = class_shard(out_, head_->shard(), shards);
    weight_->set_shard(shard);
    if (bias_ != nullptr) bias_->set_shard(shard);
  }
  context.flops += 2.0 * static_cast<double>(shards * input[0] * in_ * columns_);
  return output_shape(input);
}

Tensor Linear::forward(const Tensor& x, Cache& cache, Mode mode) {
  const Tensor rows = head_ != nullptr ? head_->gather(x) : x;
  Tensor y = output({rows.shape()[0], columns_});
  backend_->run(ops::LinearForward{rows, weight_->weight, bias_ != nullptr ? &bias_->weight : nullptr, relu_, y});
  if (mode == Mode::kTraining) {
    if (!weight_->frozen) saved(cache)[kInput] = rows;
    if (head_ != nullptr) saved_input_shape(cache) = x.shape();
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
  return head_ != nullptr ? head_->reduce(dx, saved_input_shape(cache)[0]) : dx;
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
