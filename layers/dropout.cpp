// SPDX-License-Identifier: Apache-2.0
#include "layers/dropout.h"

#include <string>

#include "layers/base/random.h"

namespace convoy {

Shape Dropout::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  context.needs_position = true;
  key_ = random_key(context.unit_key, path);
  return input;
}

Tensor Dropout::apply(const Tensor& x, const Cache& cache) const {
  Tensor y = output(x.shape());
  backend_->run(ops::Dropout{x, cache.position, key_, probability_, y});
  return y;
}

Tensor Dropout::forward(const Tensor& x, Cache& cache, Mode mode) {
  return mode == Mode::kEvaluation ? x : apply(x, cache);
}

Tensor Dropout::backward_input(const Tensor& dy, Cache& cache) {
  return needs_input_gradient_ ? apply(dy, cache) : Tensor();
}

}  // namespace convoy
