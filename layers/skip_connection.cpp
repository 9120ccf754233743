// SPDX-License-Identifier: Apache-2.0
#include "layers/skip_connection.h"

#include <string>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

Shape SkipConnection::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  HeadExchange* head = std::exchange(context.head, nullptr);  // the sum is not a linear layer
  const Shape output = layers_.build(context, path, input);
  context.head = head;
  if (output != input) {
    fail_usage("{}: the layers of a skip connection make {} of {} (they must keep the shape)", path, output.str(),
               input.str());
  }
  return output;
}

Tensor SkipConnection::add(Tensor sum, const Tensor& other) const {
  if (!sum.unshared()) {
    const Tensor own = output(sum.shape());
    backend_->zero(own);
    backend_->run(ops::Add{sum, own});
    sum = own;
  }
  backend_->run(ops::Add{other, sum});
  return sum;
}

Tensor SkipConnection::forward(const Tensor& x, Cache& cache, Mode mode) {
  return add(layers_.forward(x, cache, mode), x);
}

// `dy` is held by the caller, and here, until it is added: layers do not overwrite it.
Tensor SkipConnection::backward_input(const Tensor& dy, Cache& cache) {
  const Tensor kept = dy;
  Tensor dx = layers_.backward_input(kept, cache);
  return needs_input_gradient_ ? add(std::move(dx), kept) : Tensor();
}

Tensor SkipConnection::backward(const Tensor& dy, Cache& cache) {
  const Tensor kept = dy;
  Tensor dx = layers_.backward(kept, cache);
  return needs_input_gradient_ ? add(std::move(dx), kept) : Tensor();
}

void SkipConnection::skip_input_gradient() {
  Layer::skip_input_gradient();
  layers_.skip_input_gradient();
}

}  // namespace convoy
