// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/operation.h"

#include <fmt/format.h>

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
