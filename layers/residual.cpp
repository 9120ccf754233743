// SPDX-License-Identifier: Apache-2.0
#include "layers/residual.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

Shape ResidualBlock::build(BuildContext& context, const std::string& path, const Shape& input) {
  join(context);
  if (input.rank() != 4) fail_usage("{}: a residual block takes images [N, C, H, W], not {}", path, input.str());
  const auto conv_norm = [](std::int64_t out, std::int64_t kernel, std::int64_t stride, bool relu) {
    const Conv2dSpec spec{0, out, kernel, stride, kernel / 2};
    return std::make_unique<ConvNorm>(ConvNorm{Conv2d(spec, false), BatchNorm2d(relu)});
  };
  std::int64_t out = channels_;
  if (kind_ == Kind::kBasic) {
    path_.push_back(conv_norm(channels_, 3, stride_, true));
    path_.push_back(conv_norm(channels_, 3, 1, true));
  } else {
    out = kExpansion * channels_;
    path_.push_back(conv_norm(channels_, 1, 1, true));
    path_.push_back(conv_norm(channels_, 3, stride_, true));
    path_.push_back(conv_norm(out, 1, 1, true));
  }
  Shape shape = input;
  for (std::size_t i = 0; i < path_.size(); ++i) {
    shape = path_[i]->conv.build(context, fmt::format("{}.conv{}", path, i + 1), shape);
    shape = path_[i]->norm.build(context, fmt::format("{}.bn{}", path, i + 1), shape);
  }
  if (stride_ != 1 || input[1] != out) {
    downsample_ = conv_norm(out, 1, stride_, false);
    Shape shortcut = downsample_->conv.build(context, path + ".downsample.0", input);
    downsample_->norm.build(context, path + ".downsample.1", shortcut);
  }
  return shape;
}

Shape ResidualBlock::output_shape(const Shape& input) const {
  Shape shape = input;
  for (const auto& layers : path_) shape = layers->conv.output_shape(shape);
  return shape;
}

Tensor ResidualBlock::forward(const Tensor& x, Cache& cache, Mode mode) {
  const bool second = cache.pass == Cache::Pass::kSecond;
  Activation shortcut{x};
  if (downsample_) {
    shortcut = downsample_->forward({x}, {}, cache, mode);
    if (!second && !backend_->fuses_batch_norms()) shortcut = {shortcut.materialize(*backend_)};
  }
  Activation y{x};
  for (const auto& layers : path_) {
    y = layers->forward(y, layers == path_.back() ? shortcut : Activation(), cache, mode);
  }
  // The mask of the last ReLU takes less memory than the output, or is the output, which the next layer of the stage
  // keeps anyway. So it is kept, and a second forward ends before the output, which nobody reads.
  Tensor& mask = saved(cache)[Cache::kStatistics];
  if (second) {
    path_.back()->norm.set_mask(cache, std::move(mask));
    return {};
  }
  if (downsample_) y.values = y.residual;  // in place, unless that is pending
  Tensor result = y.materialize(*backend_);
  if (cache.pass == Cache::Pass::kFirst) mask = path_.back()->norm.mask(cache);
  return result;
}

Tensor ResidualBlock::propagate(const Tensor& dy, Cache& cache, bool weights) {
  const BatchNorm2d::OutputGradient end = path_.back()->norm.output_gradient(dy, cache);  // that of both paths
  // The gradient of a shortcut without layers is added by the first convolution, unless it is still to be masked.
  const bool adds_shortcut = !downsample_ && backend_->fuses_batch_norms() && !end.mask;
  Tensor dx = path_.back()->norm.backward_through(end, cache);
  for (std::size_t i = path_.size(); i-- > 0;) {
    Conv2d& conv = path_[i]->conv;
    if (i > 0) {
      BatchNorm2d& below = path_[i - 1]->norm;
      dx = conv.backward_input(dx, cache, Tensor(), &below);
      if (weights) path_[i]->backward_weight(cache);
      dx = below.backward_input(dx, cache);
    } else {
      dx = conv.backward_input(dx, cache, adds_shortcut ? end.dy : Tensor(), adds_shortcut ? input_norm_ : nullptr);
      if (weights) path_[i]->backward_weight(cache);
    }
  }
  if (downsample_) {
    const Tensor dshortcut = downsample_->norm.backward_through(end, cache);
    dx = downsample_->conv.backward_input(dshortcut, cache, dx, input_norm_);
    if (weights) downsample_->backward_weight(cache);
  } else if (needs_input_gradient_ && !adds_shortcut) {
    backend_->run(ops::BatchNormBackwardResidual{end.dy, end.mask, dx});
  }
  return dx;
}

void ResidualBlock::skip_input_gradient() {
  Layer::skip_input_gradient();
  path_.front()->conv.skip_input_gradient();
  if (downsample_) downsample_->conv.skip_input_gradient();
}

void ResidualBlock::backward_weight(Cache& cache) {
  for (auto it = path_.rbegin(); it != path_.rend(); ++it) (*it)->backward_weight(cache);
  if (downsample_) downsample_->backward_weight(cache);
}

}  // namespace convoy
