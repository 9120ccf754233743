// SPDX-License-Identifier: Apache-2.0
#include "layers/stem.h"

namespace convoy {

namespace {
enum Slot { kArgmax };
}

Shape ResNetStem::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  Shape shape = conv_.build(context, join_path(path, "conv1"), input);
  shape = norm_.build(context, join_path(path, "bn1"), shape);
  return pool_ ? pool_->build(context, join_path(path, "maxpool"), shape) : shape;
}

Shape ResNetStem::output_shape(const Shape& input) const {
  const Shape shape = conv_.output_shape(input);
  return pool_ ? pool_->output_shape(shape) : shape;
}

Tensor ResNetStem::forward(const Tensor& x, Cache& cache, Mode mode) {
  const Tensor raw = conv_.forward({x}, cache, mode, norm_.moments(cache, mode));
  Activation activation = norm_.forward_pending(raw, {}, cache, mode);
  if (!pool_) return activation.materialize(*backend_);
  if (backend_->fuses_batch_norms()) {
    const Tensor y = output(pool_->output_shape(raw.shape())), argmax = backend_->tensor(y.shape(), DType::kU8);
    const ops::MaxPoolForward epilogue{*spec_, ops::none(), y, argmax};
    const ops::BatchNormApply op = activation.pending->apply(ops::none(), ops::none(), nullptr, &epilogue);
    if (backend_->fuses(op)) {
      backend_->run(op);
      if (mode == Mode::kTraining) saved(cache)[kArgmax] = argmax;
      return y;
    }
  }
  return pool_->forward(activation.materialize(*backend_), cache, mode);
}

Tensor ResNetStem::backward_input(const Tensor& dy, Cache& cache) {
  Tensor& argmax = saved(cache)[kArgmax];
  if (argmax) {
    const ops::MaxPoolBackward pool{*spec_, dy, argmax, ops::none()};
    const Tensor dx = norm_.backward_through({Tensor(), Tensor(), true, &pool}, cache);
    argmax.reset();
    return conv_.backward_input(dx, cache);
  }
  return conv_.backward_input(norm_.backward_input(pool_ ? pool_->backward_input(dy, cache) : dy, cache), cache);
}

}  // namespace convoy
