// SPDX-License-Identifier: Apache-2.0
//
// Batch norm statistics from sums that a convolution has taken of its output. Private to layers/backend/cuda.
#pragma once

#include "layers/backend/backend.h"
#include "layers/backend/cuda/cuda_state.h"

namespace convoy::gpu {

/// Sets what `op` sets, from sums [2, C] of its x - pivot and of the squares of that.
void finish_statistics(const CudaState& state, const ops::BatchNormStatistics& op, const Tensor& sums);

}  // namespace convoy::gpu
