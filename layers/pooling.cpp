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

// What is kept of the position of a maximum has room for this.
constexpr std::int64_t kMaxExtent = 15;

// One window as large as the image.
PoolSpec global_window(const Shape& image) {
  const Size2d size{image[2], image[3]};
  return {size, size, 0};
}

}  // namespace

Shape WindowPool::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  require_image(layer_, path, input);
  if (std::max(spec_.kernel.height, spec_.kernel.width) > kMaxExtent) {
    fail_usage("{}: kernel_size {} (at most {})", path, spec_.kernel.str(), kMaxExtent);
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

Shape GlobalMaxPool::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  require_image("global_max_pool", path, input);
  return output_shape(input);
}

Shape GlobalMaxPool::output_shape(const Shape& input) const {
  if (std::max(input[2], input[3]) > kMaxExtent) {
    fail_usage("global_max_pool: an input of {}x{} (at most {}x{}: smaller images, or pooling before it)", input[2],
               input[3], kMaxExtent, kMaxExtent);
  }
  return {input[0], input[1]};
}

Tensor GlobalMaxPool::forward(const Tensor& x, Cache& cache, Mode mode) {
  const PoolSpec window = global_window(x.shape());
  const Tensor y = output(window.output_shape(x.shape()));
  const Tensor argmax = backend_->tensor(y.shape(), DType::kU8);
  backend_->run(ops::MaxPoolForward{window, x, y, argmax});
  if (mode == Mode::kTraining) {
    saved(cache)[0] = argmax;
    saved_input_shape(cache) = x.shape();
  }
  return y.reshaped(output_shape(x.shape()));
}

Tensor GlobalMaxPool::backward_input(const Tensor& dy, Cache& cache) {
  const PoolSpec window = global_window(saved_input_shape(cache));
  const Tensor dx = output(saved_input_shape(cache));
  const Tensor argmax = saved(cache)[0];
  backend_->run(ops::MaxPoolBackward{window, dy.reshaped(argmax.shape()), argmax, dx});
  saved(cache)[0].reset();
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
