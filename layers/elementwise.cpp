// SPDX-License-Identifier: Apache-2.0
#include "layers/elementwise.h"

namespace convoy {

Shape Elementwise::build(BuildContext& context, const std::string& /*path*/, const Shape& input) {
  join(context);
  return input;
}

Tensor Elementwise::forward(const Tensor& x, Cache& cache, Mode mode) {
  Tensor y = output(x.shape());
  backend_->run(ops::ActivationForward{function_, x, y});
  if (mode == Mode::kTraining) saved(cache)[0] = x;
  return y;
}

Tensor Elementwise::backward_input(const Tensor& dy, Cache& cache) {
  Tensor dx = in_place_of(saved(cache)[0]);
  backend_->run(ops::ActivationBackward{function_, dy, saved(cache)[0], dx});
  saved(cache)[0].reset();
  return dx;
}

}  // namespace convoy
