// SPDX-License-Identifier: Apache-2.0
//
// Own kernels around the convolutions and matrix products of the libraries. Private to layers/backend/cuda.
#pragma once

#include <span>

#include "layers/backend/backend.h"
#include "layers/backend/cuda/cuda_state.h"

namespace convoy {
struct PendingGradient;
}

namespace convoy::gpu {

/// Sets wide [N, more channels, H, W] to x [N, channels, H, W] with zeros behind.
void pad_channels(const CudaState& state, const Tensor& x, const Tensor& wide);
/// Sets x [N, channels, H, W] to the first channels of wide.
void cut_channels(const CudaState& state, const Tensor& wide, const Tensor& x);

/// y += bias (float32 [channels]) in every row of y, [N, channels, H, W] or [N, channels].
void add_bias(const CudaState& state, const Tensor& bias, const Tensor& y);
/// dbias (float32 [channels]): the sums over the rows of dy, added when `accumulate`, else set.
void bias_gradient(const CudaState& state, Backend& backend, const Tensor& dy, const Tensor& dbias, bool accumulate);

/// dw += gradient, element by element; dw is float32, gradient of any type.
void add_gradient(const CudaState& state, const Tensor& gradient, const Tensor& dw);
/// Sets the float32 dw of each to its gradient; all gradients are of one type. A kernel for each 128.
void cast_gradients(const CudaState& state, std::span<const PendingGradient> all);

}  // namespace convoy::gpu
