// SPDX-License-Identifier: Apache-2.0
#include "layers/relu.h"

#include <string>

namespace convoy {

Shape Relu::build(BuildContext& context, const std::string& /*path*/, const Shape& input) {
  join(context);
  return input;
}

Tensor Relu::forward(const Tensor& x, Cache& cache, Mode mode) {
  Tensor y = output(x.shape());
  backend_->run(ops::ReluForward{x, y});
  if (mode == Mode::kTraining) saved(cache)[0] = y;
  return y;
}

Tensor Relu::backward_input(const Tensor& dy, Cache& cache) {
  Tensor dx = in_place_of(saved(cache)[0]);
  backend_->run(ops::ReluBackward{dy, saved(cache)[0], dx});
  saved(cache)[0].reset();
  return dx;
}

}  // namespace convoy
