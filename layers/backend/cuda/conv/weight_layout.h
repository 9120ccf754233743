// SPDX-License-Identifier: Apache-2.0
//
// How the CUDA backend keeps a weight in the flat buffers: a convolution's as [out][height][width][in], with `in`
// rounded up so that tensor cores and 16-byte loads can be used, a linear layer's row-major [out][in]. The compute type
// has the same order. Private to layers/backend/cuda.
#pragma once

#include "layers/backend/backend.h"

namespace convoy {

class CudaWeightLayout final : public WeightLayout {
 public:
  /// padded_inputs: at least shape[1]; what lies between is zero.
  CudaWeightLayout(const Shape& shape, std::int64_t padded)
      : WeightLayout(shape, shape.size() / shape[1] * padded), padded_inputs(padded) {}
  std::int64_t padded_inputs;
};

/// Input channels as a convolution of this compute type sees them: 4 of the few of an image, else a multiple of 8 in 16
/// bits, of 4 in float32.
[[nodiscard]] inline std::int64_t padded_channels(std::int64_t channels, DType compute) {
  const std::int64_t unit = dtype_size(compute) == 2 && channels > 4 ? 8 : 4;
  return (channels + unit - 1) / unit * unit;
}

/// The same of a convolution; groups are not padded.
[[nodiscard]] inline std::int64_t padded_channels(const Conv2dSpec& spec, DType compute) {
  return spec.groups == 1 ? padded_channels(spec.in_channels, compute) : spec.in_channels;
}

}  // namespace convoy
