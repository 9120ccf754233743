// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of batch norm share: the affine map that a normalisation is, y = scale * x + shift, and the mask of
// the ReLU behind it, which is read from an output or computed again from x. These kernels round alike in forward and
// backward; cuDNN's mask may differ where a value is within rounding of 0.
#pragma once

#include "layers/backend/backend.h"
#include "layers/backend/cuda/channel_rows.cuh"
#include "layers/backend/cuda/fusion_rules.h"

namespace convoy::gpu {

/// [channels] each.
struct NormInputs {
  const float *mean, *variance, *gamma, *beta;
  float epsilon;
};

__device__ inline float inverse_std(float variance, float epsilon) { return 1.0F / sqrtf(variance + epsilon); }

/// y = scale * x + shift of some channels.
template <int kCount>
struct Affine {
  float scale[kCount], shift[kCount];
};

__device__ inline void set_affine(float mean, float variance, float gamma, float beta, float epsilon, float& scale,
                                  float& shift) {
  scale = gamma / sqrtf(variance + epsilon);
  shift = fmaf(-mean, scale, beta);
}

template <int kCount>
__device__ void load_affine(const NormInputs& norm, std::int64_t channel, Affine<kCount>& map) {
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) {
    const std::int64_t c = channel + lane;
    set_affine(norm.mean[c], norm.variance[c], norm.gamma[c], norm.beta[c], norm.epsilon, map.scale[lane],
               map.shift[lane]);
  }
}

/// What a merge of statistics sets; see ops::BatchNormStatistics. Null: not wanted.
struct MomentOutputs {
  float *mean, *variance, *step_mean, *step_variance;
  float mean_share, variance_share;
  const float *gamma, *beta;
  float epsilon;
  float* coefficients;
  void* rounded;
  DType rounded_type;
};

inline MomentOutputs moment_outputs(const ops::BatchNormStatistics& op) {
  return {op.mean.data<float>(),
          op.variance.data<float>(),
          op.step_mean.data<float>(),
          op.step_variance.data<float>(),
          op.share,
          op.x.size() == 0 ? 0.0F : op.variance_share(),
          op.gamma.data<float>(),
          op.beta.data<float>(),
          op.epsilon,
          op.coefficients.data<float>(),
          op.rounded.raw(),
          op.rounded.dtype()};
}

template <class Operation>
NormInputs norm_inputs(const Operation& op) {
  return {op.mean.template data<float>(), op.variance.template data<float>(), op.gamma.template data<float>(),
          op.beta.template data<float>(), op.epsilon};
}

/// The nearest number that float16 can hold; a NaN stays one.
__device__ inline float finite_half(float value) {
  constexpr float kLargest = 65504.0F;
  return value > kLargest ? kLargest : value < -kLargest ? -kLargest : value;
}

/// Sets all that is wanted of one channel.
__device__ inline void set_moments(float mean, float variance, std::int64_t channel, std::int64_t channels,
                                   const MomentOutputs& out) {
  out.mean[channel] = mean;
  out.variance[channel] = variance;
  if (out.step_mean != nullptr) {
    out.step_mean[channel] = add_product(out.step_mean[channel], out.mean_share, mean);
    out.step_variance[channel] = add_product(out.step_variance[channel], out.variance_share, variance);
  }
  if (out.coefficients == nullptr) return;
  float scale = 0.0F, shift = 0.0F;
  set_affine(mean, variance, out.gamma[channel], out.beta[channel], out.epsilon, scale, shift);
  float* column = out.coefficients + channel;
  column[0] = mean;
  column[channels] = inverse_std(variance, out.epsilon);
  column[2 * channels] = scale;
  column[3 * channels] = shift;
  if (out.rounded == nullptr) return;
  const auto set = [&](auto* rounded) {
    store(finite_half(scale), rounded + channel);
    store(finite_half(shift), rounded + channels + channel);
  };
  switch (out.rounded_type) {
    case DType::kBF16: return set(static_cast<__nv_bfloat16*>(out.rounded));
    case DType::kF16: return set(static_cast<__half*>(out.rounded));
    default: return set(static_cast<float*>(out.rounded));
  }
}

/// dy, or 0 where the ReLU was off; other: y or x, as the mask has it.
template <ReluMask kMask, class G, class T>
__device__ float masked(const G& dy, const T& other, float scale, float shift) {
  const float g = load(dy);
  if constexpr (kMask == ReluMask::kOutput) return load(other) <= 0.0F ? 0.0F : g;
  if constexpr (kMask == ReluMask::kRecomputed) return fmaf(load(other), scale, shift) <= 0.0F ? 0.0F : g;
  return g;
}

}  // namespace convoy::gpu
