// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of the CUDA backend: cuDNN's on channels-last activations (conv_plans.h), between the padding of input
// channels, which the weights always have (weight_layout.h), and the biases, which are added and summed apart. Weight
// gradients of 16-bit activations leave cuDNN in 16 bits, as it has no plan that writes float32, and are summed in
// float32 from then on.
#include "layers/backend/cuda/conv_plans.h"
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/cuda_state.h"
#include "layers/backend/cuda/dense_kernels.h"
#include "layers/backend/cuda/weight_layout.h"

namespace convoy {

namespace {

ConvolutionPlans& plans_of(CudaState& state) {
  if (!state.convolutions) state.convolutions = std::make_shared<ConvolutionPlans>();
  return *state.convolutions;
}

ConvPlanKey plan_key(ConvDirection direction, const Conv2dSpec& s, const Shape& x, DType type) {
  return {direction, x[0], padded_channels(s.in_channels, type), x[2], x[3], s.out_channels, s.kernel, s.stride,
          s.padding, type};
}

Shape padded_shape(const ConvPlanKey& key) { return {key.batch, key.in_channels, key.height, key.width}; }

// x with as many channels as the plan reads: x itself or a padded copy.
Tensor padded_input(const CudaState& state, Backend& backend, const ConvPlanKey& key, const Tensor& x) {
  if (x.shape()[1] == key.in_channels) return x;
  Tensor wide = backend.tensor(padded_shape(key), x.dtype());
  gpu::pad_channels(state, x, wide);
  return wide;
}

}  // namespace

std::unique_ptr<WeightLayout> CudaBackend::conv2d_layout(const Conv2dSpec& spec, const Shape& input) {
  return std::make_unique<CudaWeightLayout>(Shape{spec.out_channels, spec.in_channels, spec.kernel, spec.kernel},
                                            padded_channels(input[1], options_.compute));
}

void CudaBackend::conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Weight& w, const Weight* bias,
                                 const Tensor& y) {
  if (y.size() == 0) return;
  const ConvPlanKey key = plan_key(ConvDirection::kForward, spec, x.shape(), options_.compute);
  const Tensor input = padded_input(*state_, *this, key, x);
  plans_of(*state_).run(*state_, *this, key, {input.raw(), w.compute.raw(), y.raw()});
  if (bias != nullptr) gpu::add_bias(*state_, bias->master, y);
}

void CudaBackend::conv2d_backward_input(const Conv2dSpec& spec, const Tensor& dy, const Weight& w, const Tensor& dx) {
  if (dx.size() == 0) return;
  const ConvPlanKey key = plan_key(ConvDirection::kBackwardInput, spec, dx.shape(), options_.compute);
  const bool padded = dx.shape()[1] != key.in_channels;
  const Tensor result = padded ? tensor(padded_shape(key), dx.dtype()) : dx;
  plans_of(*state_).run(*state_, *this, key, {result.raw(), w.backward.raw(), dy.raw()});
  if (padded) gpu::cut_channels(*state_, result, dx);
}

void CudaBackend::conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& x, const Tensor& dy, const Weight& w,
                                         const Tensor& dw, const Tensor& dbias, bool accumulate) {
  if (dbias) gpu::bias_gradient(*state_, *this, dy, dbias, accumulate);
  if (x.size() == 0) {
    if (!accumulate) zero(dw);
    return;
  }
  const ConvPlanKey key = plan_key(ConvDirection::kBackwardWeight, spec, x.shape(), options_.compute);
  const Tensor input = padded_input(*state_, *this, key, x);
  const bool direct = key.type == DType::kF32 && !accumulate;
  const Tensor result = direct ? dw : tensor({w.layout->elements()}, key.type);
  plans_of(*state_).run(*state_, *this, key, {input.raw(), result.raw(), dy.raw()});
  if (direct) return;
  if (accumulate) {
    gpu::add_gradient(*state_, result, dw);
  } else {
    cast(result, dw);
  }
}

}  // namespace convoy
