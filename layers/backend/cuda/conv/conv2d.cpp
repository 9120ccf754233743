// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of the CUDA backend: cuDNN's on channels-last activations (conv_plans.h), between the padding of input
// channels, which the weights of one group always have (weight_layout.h), and the biases, which are added and summed
// apart. Weight gradients of 16-bit activations leave cuDNN in 16 bits, as it has no plan that writes float32, and are
// summed in float32 from then on.
#include "layers/backend/cuda/conv/conv_plans.h"
#include "layers/backend/cuda/conv/dense_kernels.h"
#include "layers/backend/cuda/conv/weight_layout.h"
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/cuda_state.h"

namespace convoy {

namespace {

ConvolutionPlans& plans_of(CudaState& state) {
  if (!state.convolutions) state.convolutions = std::make_shared<ConvolutionPlans>(state.plan_file);
  return *state.convolutions;
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
  const Shape shape = spec.weight_shape();
  return std::make_unique<CudaWeightLayout>(shape,
                                            spec.groups == 1 ? padded_channels(input[1], options_.compute) : shape[1]);
}

void CudaBackend::run(const ops::Conv2dForward& op) {
  if (run_apart(op)) return;
  if (op.y.size() == 0) return;
  const ConvPlanKey key = conv_plan_key(ConvDirection::kForward, op.spec, op.x.shape(), options_.compute);
  const Tensor input = padded_input(*state_, *this, key, op.x);
  plans_of(*state_).run(*state_, *this, key, {input.raw(), op.w.compute.raw(), op.y.raw()});
  if (op.bias != nullptr) gpu::add_bias(*state_, op.bias->master, op.y);
}

void CudaBackend::run(const ops::Conv2dBackwardInput& op) {
  if (op.dx.size() == 0) return;
  const ConvPlanKey key = conv_plan_key(ConvDirection::kBackwardInput, op.spec, op.dx.shape(), options_.compute);
  const bool padded = op.dx.shape()[1] != key.in_channels;
  const Tensor result = padded ? tensor(padded_shape(key), op.dx.dtype()) : op.dx;
  plans_of(*state_).run(*state_, *this, key, {result.raw(), op.w.backward.raw(), op.dy.raw()});
  if (padded) gpu::cut_channels(*state_, result, op.dx);
}

void CudaBackend::run(const ops::Conv2dBackwardInputAdd& op) { add_to_input_gradient(op); }

void CudaBackend::run(const ops::Conv2dBackwardWeight& op) {
  if (op.dbias) gpu::bias_gradient(*state_, *this, op.dy, op.dbias, op.accumulate);
  if (op.x.size() == 0) {
    if (!op.accumulate) zero(op.dw);
    return;
  }
  const ConvPlanKey key = conv_plan_key(ConvDirection::kBackwardWeight, op.spec, op.x.shape(), options_.compute);
  const Tensor input = padded_input(*state_, *this, key, op.x);
  const bool direct = key.type == DType::kF32 && !op.accumulate;
  const Tensor result = direct ? op.dw : tensor({op.w.layout->elements()}, key.type);
  plans_of(*state_).run(*state_, *this, key, {input.raw(), result.raw(), op.dy.raw()});
  if (direct) return;
  if (op.accumulate) {
    gpu::add_gradient(*state_, result, op.dw);
  } else {
    run(ops::Cast{result, op.dw});
  }
}

}  // namespace convoy
