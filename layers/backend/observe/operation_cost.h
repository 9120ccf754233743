// SPDX-License-Identifier: Apache-2.0
//
// What an operation costs at least: floating-point operations, and bytes of its inputs and outputs, each moved once.
// Pure functions of shapes. Invariant: a multiply-add counts as two operations, as in the peaks that they are held
// against.
#pragma once

#include "layers/backend/backend.h"

namespace convoy {

struct OperationCost {
  double flops = 0;
  double bytes = 0;
};

/// Bytes of all these tensors; empty ones count nothing.
template <class... Tensors>
[[nodiscard]] double bytes_of(const Tensors&... tensors) {
  return (0.0 + ... + (tensors ? static_cast<double>(tensors.bytes()) : 0.0));
}

/// Any of the three products of a convolution with output y [N, out, H, W]: 2 N H W out in k^2.
[[nodiscard]] inline double conv2d_flops(const Conv2dSpec& spec, const Tensor& y) {
  return 2.0 * static_cast<double>(y.size()) * static_cast<double>(spec.in_channels * spec.kernel * spec.kernel);
}

/// Any of the three products of a linear layer with output y [N, out] and weight [out, in].
[[nodiscard]] inline double linear_flops(const Weight& w, const Tensor& y) {
  return 2.0 * static_cast<double>(y.shape()[0]) * static_cast<double>(w.layout->shape().size());
}

}  // namespace convoy
