// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/operation.h"

#include <fmt/format.h>

#include "layers/base/error.h"

namespace convoy {

void PoolSpec::check() const {
  const auto wrong = [](std::int64_t k, std::int64_t s, std::int64_t p) {
    return k < 1 || k > 15 || s < 1 || p < 0 || 2 * p > k;
  };
  if (wrong(kernel.height, stride.height, padding.height) || wrong(kernel.width, stride.width, padding.width)) {
    fail_usage("pooling needs kernel 1 to 15, stride at least 1 and padding at most half the kernel, not {}, {}, {}",
               kernel.str(), stride.str(), padding.str());
  }
}

}  // namespace convoy

namespace convoy::ops {

std::string conv2d_detail(const Conv2dSpec& spec, const Shape& input) {
  return fmt::format("{}x{} {} -> {}{}{}, {}", spec.kernel.height, spec.kernel.width, spec.in_channels,
                     spec.out_channels, spec.stride == 1 ? "" : " /" + spec.stride.str(),
                     spec.groups == 1 ? "" : fmt::format(" in {} groups", spec.groups), input.str());
}

std::string linear_detail(const Weight& w, const Tensor& y) {
  return fmt::format("{} -> {}, batch {}", w.layout->shape()[1], w.layout->shape()[0], y.shape()[0]);
}

double conv2d_flops(const Conv2dSpec& spec, const Tensor& y) {
  const std::int64_t terms = spec.in_channels / spec.groups * spec.kernel.area();
  return 2.0 * static_cast<double>(y.size()) * static_cast<double>(terms);
}

double linear_flops(const Weight& w, const Tensor& y) {
  return 2.0 * static_cast<double>(y.shape()[0]) * static_cast<double>(w.layout->shape().size());
}

}  // namespace convoy::ops
