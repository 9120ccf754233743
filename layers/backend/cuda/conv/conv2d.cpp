// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of the CUDA backend: cuDNN's on channels-last activations (conv_plans.h), between the padding of input
// channels, which the weights of one group always have (weight_layout.h), and the biases, which are added and summed
// apart. Weight gradients of 16-bit activations leave cuDNN in 16 bits, as it has no plan that writes float32, and are
// summed in float32 from then on; those that are set wait for finish_gradients(). What fusion_rules.h names is fused
// where cuDNN has a plan for it, else it runs apart.
#include <algorithm>
#include <cstdint>

#include "layers/backend/cuda/batch_norm_sums.h"
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

std::int64_t CudaBackend::input_channels(const Conv2dSpec& spec) const {
  return padded_channels(spec, options_.compute);
}

std::unique_ptr<WeightLayout> CudaBackend::conv2d_layout(const Conv2dSpec& spec, const Shape& /*input*/) {
  const Shape shape = spec.weight_shape();
  return std::make_unique<CudaWeightLayout>(shape, spec.groups == 1 ? input_channels(spec) : shape[1]);
}

// A plan reads 16 bytes at a time; statistics behind a batch norm with an odd number of channels begin anywhere.
Tensor CudaBackend::aligned_pivot(const Tensor& pivot, std::int64_t channels) {
  if (pivot && reinterpret_cast<std::uintptr_t>(pivot.raw()) % 16 == 0) return pivot;
  if (!pivot) return zeros({channels}, DType::kF32);
  Tensor copy = tensor({channels}, DType::kF32);
  run(ops::Cast{pivot, copy});
  return copy;
}

bool CudaBackend::run_fused(const ops::Conv2dForward& op) {
  const std::int64_t channels = op.y.shape()[1];
  ConvFusion fusion;
  fusion.prologue = op.prologue != nullptr;
  fusion.statistics = op.epilogue != nullptr;
  const ConvPlanKey key = conv_plan_key(ConvDirection::kForward, op.spec, op.input_shape(), options_.compute, fusion);
  const Tensor input = fusion.prologue ? op.prologue->x : padded_input(*state_, *this, key, op.x);
  ConvBuffers buffers{input.raw(), op.w.compute.raw(), op.y.raw()};
  if (fusion.prologue) {
    auto* rows = op.prologue->coefficients.data<float>();
    buffers.scale = rows + 2 * op.spec.in_channels;
    buffers.shift = rows + 3 * op.spec.in_channels;
  }
  Tensor sums, pivot;
  if (fusion.statistics) {
    sums = zeros({2, channels}, DType::kF32);
    pivot = aligned_pivot(op.epilogue->pivot, channels);
    buffers.pivot = pivot.raw();
    buffers.sums = sums.raw();
    buffers.squares = sums.data<float>() + channels;
  }
  if (!plans_of(*state_).try_run(*state_, *this, key, buffers)) return false;
  if (fusion.statistics) gpu::finish_statistics(*state_, *op.epilogue, sums);
  return true;
}

void CudaBackend::run(const ops::Conv2dForward& op) {
  if (rules_.fuses(op) && run_fused(op)) return;
  if (run_apart(op) || op.y.size() == 0) return;
  const ConvPlanKey key = conv_plan_key(ConvDirection::kForward, op.spec, op.x.shape(), options_.compute);
  const Tensor input = padded_input(*state_, *this, key, op.x);
  plans_of(*state_).run(*state_, *this, key, {input.raw(), op.w.compute.raw(), op.y.raw()});
  if (op.bias != nullptr) gpu::add_bias(*state_, op.bias->master, op.y);
}

bool CudaBackend::run_fused(const ops::Conv2dBackwardInput& op) {
  ConvFusion fusion;
  fusion.residual = static_cast<bool>(op.residual);
  fusion.reductions = op.epilogue != nullptr;
  if (fusion.reductions && op.epilogue->mask) fusion.mask = ReluMask::kOutput;
  if (fusion.reductions && !op.epilogue->mask && op.epilogue->relu) fusion.mask = ReluMask::kRecomputed;
  const ConvPlanKey key =
      conv_plan_key(ConvDirection::kBackwardInput, op.spec, op.dx.shape(), options_.compute, fusion);
  ConvBuffers buffers{op.dx.raw(), op.w.backward.raw(), op.dy.raw()};
  buffers.residual = op.residual.raw();
  if (fusion.reductions) {
    const std::int64_t channels = op.dx.shape()[1];
    auto* rows = op.epilogue->coefficients.data<float>();
    buffers.norm_input = op.epilogue->x.raw();
    buffers.mean = rows;
    buffers.inverse_std = rows + channels;
    buffers.dgamma = op.epilogue->dgamma.raw();
    buffers.dbeta = op.epilogue->dbeta.raw();
    if (fusion.mask == ReluMask::kOutput) buffers.mask = op.epilogue->mask.raw();
    if (fusion.mask == ReluMask::kRecomputed) {
      buffers.scale = rows + 2 * channels;
      buffers.shift = rows + 3 * channels;
    }
  }
  return plans_of(*state_).try_run(*state_, *this, key, buffers);
}

void CudaBackend::run(const ops::Conv2dBackwardInput& op) {
  if (rules_.fuses(op) && run_fused(op)) return;
  if (run_apart(op) || op.dx.size() == 0) return;
  if (op.residual) return add_residual(op);
  const ConvPlanKey key = conv_plan_key(ConvDirection::kBackwardInput, op.spec, op.dx.shape(), options_.compute);
  const bool padded = op.dx.shape()[1] != key.in_channels;
  const Tensor result = padded ? tensor(padded_shape(key), op.dx.dtype()) : op.dx;
  plans_of(*state_).run(*state_, *this, key, {result.raw(), op.w.backward.raw(), op.dy.raw()});
  if (padded) gpu::cut_channels(*state_, result, op.dx);
}

bool CudaBackend::run_weight_gradient(const ops::Conv2dBackwardWeight& op, const Tensor& result) {
  ConvFusion fusion;
  fusion.prologue = op.prologue != nullptr;
  const ConvPlanKey key =
      conv_plan_key(ConvDirection::kBackwardWeight, op.spec, op.input_shape(), options_.compute, fusion);
  const Tensor input = fusion.prologue ? op.prologue->x : padded_input(*state_, *this, key, op.x);
  ConvBuffers buffers{input.raw(), result.raw(), op.dy.raw()};
  if (!fusion.prologue) {
    plans_of(*state_).run(*state_, *this, key, buffers);
    return true;
  }
  buffers.scale = op.prologue->rounded.raw();
  buffers.shift = op.prologue->rounded.view(op.spec.in_channels, {op.spec.in_channels}).raw();
  return plans_of(*state_).try_run(*state_, *this, key, buffers);
}

void CudaBackend::run(const ops::Conv2dBackwardWeight& op) {
  if (!rules_.fuses(op) && run_apart(op)) return;
  const auto same = [&](const PendingGradient& pending) { return pending.dw.raw() == op.dw.raw(); };
  if (std::any_of(pending_gradients_.begin(), pending_gradients_.end(), same)) finish_gradients();
  if (op.dbias) gpu::bias_gradient(*state_, *this, op.dy, op.dbias, op.accumulate);
  if (op.dy.size() == 0) {
    if (!op.accumulate) zero(op.dw);
    return;
  }
  const bool direct = options_.compute == DType::kF32 && !op.accumulate;
  const Tensor result = direct ? op.dw : tensor({op.w.layout->elements()}, options_.compute);
  if (!run_weight_gradient(op, result)) {
    run_apart({op.spec, op.x, op.dy, op.w, op.dw, ops::none(), op.accumulate, op.prologue});
    return;
  }
  if (direct) return;
  if (op.accumulate) {
    gpu::add_gradient(*state_, result, op.dw);
  } else {
    pending_gradients_.push_back({result, op.dw});
  }
}

void CudaBackend::finish_gradients() {
  if (pending_gradients_.empty()) return;
  gpu::cast_gradients(*state_, pending_gradients_);
  pending_gradients_.clear();
}

}  // namespace convoy
