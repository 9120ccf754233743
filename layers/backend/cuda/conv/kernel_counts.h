// SPDX-License-Identifier: Apache-2.0
//
// How many kernels, or clearings of memory, the CUDA backend starts for an operation: the nodes of a recorded step. A
// call of cuDNN or cuBLASLt counts as one, though some of their plans add up parts with a second kernel. An operation
// with parts is one that is fused (fusion_rules.h); the deferred conversions of weight gradients are counted where they
// are made. Without any header of CUDA. Pure.
#pragma once

#include <cstdint>

#include "layers/backend/cuda/conv/weight_layout.h"
#include "layers/backend/operations.h"

namespace convoy {

[[nodiscard]] inline bool is_16_bit(DType type) { return dtype_size(type) == 2; }

/// Sums over the rows of an activation: one kernel for slices of them, one for the sums of those.
inline constexpr int kSumKernels = 2;

/// One pass over memory.
template <class Operation>
[[nodiscard]] int kernels_of(const Operation& /*op*/, DType /*compute*/) {
  return 1;
}

// Conversion of the bias to 16 bits, product, ReLU.
[[nodiscard]] inline int kernels_of(const ops::LinearForward& op, DType compute) {
  return (op.bias != nullptr && is_16_bit(compute) ? 1 : 0) + 1 + (op.relu ? 1 : 0);
}

[[nodiscard]] inline int kernels_of(const ops::LinearBackwardWeight& op, DType /*compute*/) {
  return (op.dbias ? kSumKernels : 0) + 1;
}

// Padding of the channels, convolution, bias, sums of the statistics.
[[nodiscard]] inline int kernels_of(const ops::Conv2dForward& op, DType compute) {
  const bool pads = op.input_shape()[1] != padded_channels(op.spec, compute);
  return (pads ? 1 : 0) + 1 + (op.bias != nullptr ? 1 : 0) + (op.epilogue != nullptr ? 1 : 0);
}

[[nodiscard]] inline int kernels_of(const ops::Conv2dBackwardInput& op, DType compute) {
  return op.dx.shape()[1] != padded_channels(op.spec, compute) ? 2 : 1;
}

// Sums of the bias, padding of the channels, convolution, addition to what is there.
[[nodiscard]] inline int kernels_of(const ops::Conv2dBackwardWeight& op, DType compute) {
  const bool pads = op.input_shape()[1] != padded_channels(op.spec, compute);
  return (op.dbias ? kSumKernels : 0) + (pads ? 1 : 0) + 1 + (op.accumulate ? 1 : 0);
}

[[nodiscard]] inline int kernels_of(const ops::BatchNormStatistics& /*op*/, DType /*compute*/) { return kSumKernels; }
[[nodiscard]] inline int kernels_of(const ops::BatchNormBackwardReduce& /*op*/, DType /*compute*/) {
  return kSumKernels;
}
[[nodiscard]] inline int kernels_of(const ops::LayerNormBackwardWeight& /*op*/, DType /*compute*/) {
  return kSumKernels;
}

// One row of outputs to a block, then the scores of all.
[[nodiscard]] inline int kernels_of(const ops::SoftmaxCrossEntropy& /*op*/, DType /*compute*/) { return 2; }
[[nodiscard]] inline int kernels_of(const ops::PointwiseLoss& /*op*/, DType /*compute*/) { return 2; }
[[nodiscard]] inline int kernels_of(const ops::ShardCrossEntropy& /*op*/, DType /*compute*/) { return 2; }

// Sums of pieces of segments, then of segments.
[[nodiscard]] inline int kernels_of(const ops::SquaredNorms& /*op*/, DType /*compute*/) { return 2; }

// Norms of the segments (of LAMB with the moments), their rates, the update.
[[nodiscard]] inline int kernels_of(const ops::LambUpdate& /*op*/, DType /*compute*/) { return 3; }
[[nodiscard]] inline int kernels_of(const ops::LarsUpdate& /*op*/, DType /*compute*/) { return 3; }

}  // namespace convoy
