// SPDX-License-Identifier: Apache-2.0
#include "layers/pooling.h"

#include <algorithm>
#include <string>

#include "layers/base/error.h"

namespace convoy {

namespace {

void require_image(std::string_view layer, const std::string& path, const Shape& input) {
  if (input.rank() != 4) fail_usage("{}: {} takes images [N, C, H, W], not {}", path, layer, input.str());
}

}  // namespace

Shape WindowPool::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  require_image(layer_, path, input);
  if (std::max(spec_.kernel.height, spec_.kernel.width) > 15) {
    fail_usage("{}: kernel_size {} (at most 15)", path, spec_.kernel.str());
  }
  if (2 * spec_.padding.height > spec_.kernel.height || 2 * spec_.padding.width > spec_.kernel.width) {
    fail_usage("{}: padding {} is more than half of kernel_size {}", path, spec_.padding.str(), spec_.kernel.str());
  }
  if (!spec_.fits(input)) {
    fail_usage("{}: kernel_size {} is larger than its input of {}x{} (larger images, or a smaller window)", path,
               spec_.kernel.str(), input[2], input[3]);
  }
  return output_shape(input);
}

Tensor MaxPool2d::forward(const Tensor& x, Cache& cache, Mode mode) {
  Tensor y = output(output_shape(x.shape()));
  Tensor argmax = backend_->tensor(y.shape(), DType::kU8);
  backend_->run(ops::MaxPoolForward{spec(), x, y, argmax});
  if (mode == Mode::kTraining) {
    saved(cache)[0] = argmax;
    saved_input_shape(cache) = x.shape();
  }
  return y;
}

Tensor MaxPool2d::backward_input(const Tensor& dy, Cache& cache) {
  Tensor dx = output(saved_input_shape(cache));
  backend_->run(ops::MaxPoolBackward{spec(), dy, saved(cache)[0], dx});
  saved(cache)[0].reset();
  return dx;
}

Tensor AvgPool2d::forward(const Tensor& x, Cache& cache, Mode mode) {
  if (mode == Mode::kTraining) saved_input_shape(cache) = x.shape();
  Tensor y = output(output_shape(x.shape()));
  backend_->run(ops::AvgPoolForward{spec(), x, y});
  return y;
}

Tensor AvgPool2d::backward_input(const Tensor& dy, Cache& cache) {
  Tensor dx = output(saved_input_shape(cache));
  backend_->run(ops::AvgPoolBackward{spec(), dy, dx});
  return dx;
}

Shape GlobalAvgPool::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  require_image("global_avg_pool", path, input);
  return output_shape(input);
}

Shape GlobalAvgPool::output_shape(const Shape& input) const { return {input[0], input[1]}; }

Tensor GlobalAvgPool::forward(const Tensor& x, Cache& cache, Mode mode) {
  if (mode == Mode::kTraining) saved_input_shape(cache) = x.shape();
  Tensor y = output(output_shape(x.shape()));
  backend_->run(ops::GlobalAvgPoolForward{x, y});
  return y;
}

Tensor GlobalAvgPool::backward_input(const Tensor& dy, Cache& cache) {
  Tensor dx = output(saved_input_shape(cache));
  backend_->run(ops::GlobalAvgPoolBackward{dy, dx});
  return dx;
}

Shape Flatten::build(BuildContext& context, const std::string& /*path*/, const Shape& input) {
  join(context);
  return output_shape(input);
}

Shape Flatten::output_shape(const Shape& input) const { return {input[0], input.sample_size()}; }

Tensor Flatten::forward(const Tensor& x, Cache& cache, Mode mode) {
  if (mode == Mode::kTraining) saved_input_shape(cache) = x.shape();
  if (x.shape().rank() == 2) return x;
  Tensor y = output(output_shape(x.shape()));
  backend_->run(ops::Flatten{x, y});
  return y;
}

Tensor Flatten::backward_input(const Tensor& dy, Cache& cache) {
  if (saved_input_shape(cache).rank() == 2) return dy;
  Tensor dx = output(saved_input_shape(cache));
  backend_->run(ops::Unflatten{dy, dx});
  return dx;
}

}  // namespace convoy
