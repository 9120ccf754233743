// SPDX-License-Identifier: Apache-2.0
//
// Optimizer updates of the CUDA backend over flat float32 buffers, each in one pass. Which products are rounded is
// written out (fmaf), so that an element's result does not depend on where it lies in the buffer, and a network cut
// into stages trains to the same bits.
#include <algorithm>
#include <cmath>

#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/element.cuh"
#include "layers/backend/cuda/segments.cuh"

namespace convoy {

namespace {

using gpu::kThreads;
using gpu::PieceRow;
using gpu::SegmentRow;
using gpu::Vector;

// What an update changes, beside the gradients that it reads.
template <int kSlots>
struct Slots {
  float* at[kSlots];
};

// Each step takes the gradient and the slots of one element, and whether weight decay applies to it.
struct SgdStep {
  static constexpr int kSlots = 2;
  ops::SgdUpdate::Hyperparameters u;
  __device__ void operator()(float g, float (&slot)[kSlots], bool decays) const {
    float &w = slot[0], &v = slot[1];
    const float d = fmaf(decays ? u.weight_decay : 0.0F, w, g);
    v = fmaf(u.momentum, v, d);
    w = fmaf(-u.lr, u.nesterov ? fmaf(u.momentum, v, d) : v, w);
  }
};

struct PlainSgdStep {
  static constexpr int kSlots = 1;
  ops::SgdUpdate::Hyperparameters u;
  __device__ void operator()(float g, float (&slot)[kSlots], bool decays) const {
    float& w = slot[0];
    w = fmaf(-u.lr, fmaf(decays ? u.weight_decay : 0.0F, w, g), w);
  }
};

struct AdamwStep {
  static constexpr int kSlots = 3;
  float keep;                        // 1 - lr * weight_decay
  float beta1, rest1, beta2, rest2;  // rest = 1 - beta
  float step;                        // lr / bias1
  float root_bias2, epsilon;
  __device__ void operator()(float g, float (&slot)[kSlots], bool decays) const {
    float &w = slot[0], &m = slot[1], &v = slot[2];
    m = fmaf(beta1, m, rest1 * g);
    v = fmaf(beta2, v, rest2 * g * g);
    w = fmaf(-step, m / (sqrtf(v) / root_bias2 + epsilon), decays ? w * keep : w);
  }
};

struct LarsStep {
  static constexpr int kSlots = 2;
  float momentum, rate, decay;
  __device__ void operator()(float g, float (&slot)[kSlots], bool /*decays*/) const {
    float &w = slot[0], &v = slot[1];
    v = fmaf(momentum, v, rate * fmaf(decay, w, g));
    w -= v;
  }
};

struct LambFactors {
  float beta1, rest1, beta2, rest2;  // rest = 1 - beta
  float bias1, root_bias2, epsilon, decay;
  __device__ void moments(float g, float& m, float& v) const {
    m = fmaf(beta1, m, rest1 * g);
    v = fmaf(beta2, v, rest2 * g * g);
  }
  __device__ float direction(float w, float m, float v, bool decays) const {
    const float adam = m / bias1 / (sqrtf(v) / root_bias2 + epsilon);
    return decays ? fmaf(decay, w, adam) : adam;
  }
};

// Every stride-th vector from `first` on, then what the vectors leave. Sets *nonfinite (or null) to 1 if a new value is
// not finite. kChooses: no_decay says which elements decay (training_operations.h), else all do.
template <bool kChooses, class Step>
__device__ void update_range(Step step, Slots<Step::kSlots> slots, const float* g, std::int64_t vectors,
                             std::int64_t count, std::int64_t first, std::int64_t stride, double* nonfinite,
                             const std::uint8_t* no_decay) {
  constexpr int kCount = gpu::kLanes<float>, kSlots = Step::kSlots;
  static_assert(kParameterAlignment % kCount == 0);
  const auto decays = [no_decay](std::int64_t element) {
    return !kChooses || no_decay[element / kParameterAlignment] == 0;
  };
  bool finite = true;
  for (std::int64_t i = first; i < vectors; i += stride) {
    const auto gradient = gpu::load_vector<kCount>(g, i);
    const bool decay = decays(i * kCount);
    Vector<float, kCount> state[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) state[s] = gpu::load_vector<kCount>(slots.at[s], i);
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      float element[kSlots];
#pragma unroll
      for (int s = 0; s < kSlots; ++s) element[s] = state[s].lanes[lane];
      step(gradient.lanes[lane], element, decay);
      finite = finite && isfinite(element[0]);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) state[s].lanes[lane] = element[s];
    }
#pragma unroll
    for (int s = 0; s < kSlots; ++s) gpu::store_vector(state[s], slots.at[s], i);
  }
  for (std::int64_t i = vectors * kCount + first; i < count; i += stride) {
    float element[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) element[s] = slots.at[s][i];
    step(g[i], element, decays(i));
    finite = finite && isfinite(element[0]);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) slots.at[s][i] = element[s];
  }
  if (!finite && nonfinite != nullptr) *nonfinite = 1.0;
}

template <bool kChooses, class Step>
__global__ void __launch_bounds__(kThreads)
    update_kernel(Step step, Slots<Step::kSlots> slots, const float* g, std::int64_t vectors, std::int64_t count,
                  double* nonfinite, const std::uint8_t* no_decay) {
  update_range<kChooses>(step, slots, g, vectors, count, gpu::grid_thread(), gpu::grid_threads(), nonfinite, no_decay);
}

// Over whole buffers; `slot`: as many as the step has.
template <class Step, class... Slot>
void update_all(const CudaState& state, Step step, std::int64_t count, const float* g, const Tensor& nonfinite,
                const Tensor& no_decay, Slot*... slot) {
  if (count == 0) return;
  const std::int64_t vectors = gpu::whole_vectors<float, Slot...>(count, g, slot...);
  const std::int64_t items = std::max(vectors, count - vectors * gpu::kLanes<float>);
  gpu::launch_kernel(state, gpu::grid_blocks(state, items), kThreads,
                     no_decay ? update_kernel<true, Step> : update_kernel<false, Step>, step,
                     Slots<Step::kSlots>{{slot...}}, g, vectors, count, nonfinite.data<double>(),
                     no_decay.data<std::uint8_t>());
}

__global__ void __launch_bounds__(kThreads)
    lars_squares_kernel(const PieceRow* pieces, const SegmentRow* segments, const float* w, const float* g,
                        double* w_squares, double* g_squares) {
  const PieceRow piece = pieces[blockIdx.x];
  if (segments[piece.segment].adapt == 0) return;
  double w_sum = 0.0, g_sum = 0.0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < piece.elements; i += kThreads) {
    const double weight = w[piece.offset + i], gradient = g[piece.offset + i];
    w_sum = fma(weight, weight, w_sum);
    g_sum = fma(gradient, gradient, g_sum);
  }
  w_sum = gpu::block_sum(w_sum);
  g_sum = gpu::block_sum(g_sum);
  if (threadIdx.x == 0) {
    w_squares[blockIdx.x] = w_sum;
    g_squares[blockIdx.x] = g_sum;
  }
}

// One thread per segment adds its pieces in order.
__global__ void __launch_bounds__(kThreads)
    lars_rates_kernel(ops::LarsUpdate::Hyperparameters u, const SegmentRow* segments, std::int64_t count,
                      const double* w_squares, const double* g_squares, float* rates) {
  const std::int64_t s = gpu::grid_thread();
  if (s >= count) return;
  const SegmentRow segment = segments[s];
  double ratio = 1.0;
  if (segment.adapt != 0) {
    const double w_norm = sqrt(gpu::sum_of_pieces(segment, w_squares));
    const double g_norm = sqrt(gpu::sum_of_pieces(segment, g_squares));
    if (w_norm > 0.0 && g_norm > 0.0) ratio = u.trust * w_norm / (g_norm + u.weight_decay * w_norm + u.epsilon);
  }
  rates[s] = static_cast<float>(u.lr * ratio);
}

__global__ void __launch_bounds__(kThreads)
    lars_update_kernel(ops::LarsUpdate::Hyperparameters u, const PieceRow* pieces, const SegmentRow* segments,
                       const float* rates, float* w, const float* g, float* v, double* nonfinite) {
  const PieceRow piece = pieces[blockIdx.x];
  const LarsStep step{u.momentum, rates[piece.segment], segments[piece.segment].adapt != 0 ? u.weight_decay : 0.0F};
  w += piece.offset;
  g += piece.offset;
  v += piece.offset;
  const std::int64_t vectors = gpu::whole_vectors<float, float, float>(piece.elements, w, g, v);
  update_range<false>(step, Slots<2>{{w, v}}, g, vectors, piece.elements, threadIdx.x, blockDim.x, nonfinite, nullptr);
}

__global__ void __launch_bounds__(kThreads)
    lamb_moments_kernel(LambFactors factors, const PieceRow* pieces, const SegmentRow* segments, const float* w,
                        const float* g, float* m, float* v, const std::uint8_t* no_decay, double* w_squares,
                        double* u_squares) {
  const PieceRow piece = pieces[blockIdx.x];
  const bool adapts = segments[piece.segment].adapt != 0;
  const bool decays = no_decay == nullptr || no_decay[piece.offset / kParameterAlignment] == 0;
  double w_sum = 0.0, u_sum = 0.0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < piece.elements; i += kThreads) {
    const std::int64_t at = piece.offset + i;
    float first = m[at], second = v[at];
    factors.moments(g[at], first, second);
    m[at] = first;
    v[at] = second;
    const double weight = w[at], direction = factors.direction(w[at], first, second, decays);
    w_sum = fma(weight, weight, w_sum);
    u_sum = fma(direction, direction, u_sum);
  }
  if (!adapts) return;
  w_sum = gpu::block_sum(w_sum);
  u_sum = gpu::block_sum(u_sum);
  if (threadIdx.x == 0) {
    w_squares[blockIdx.x] = w_sum;
    u_squares[blockIdx.x] = u_sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    lamb_rates_kernel(float lr, const SegmentRow* segments, std::int64_t count, const double* w_squares,
                      const double* u_squares, float* rates) {
  const std::int64_t s = gpu::grid_thread();
  if (s >= count) return;
  const SegmentRow segment = segments[s];
  double ratio = 1.0;
  if (segment.adapt != 0) {
    const double w_norm = sqrt(gpu::sum_of_pieces(segment, w_squares));
    const double u_norm = sqrt(gpu::sum_of_pieces(segment, u_squares));
    if (w_norm > 0.0 && u_norm > 0.0) ratio = w_norm / u_norm;
  }
  rates[s] = static_cast<float>(lr * ratio);
}

__global__ void __launch_bounds__(kThreads)
    lamb_update_kernel(LambFactors factors, const PieceRow* pieces, const float* rates, float* w, const float* m,
                       const float* v, const std::uint8_t* no_decay, double* nonfinite) {
  const PieceRow piece = pieces[blockIdx.x];
  const bool decays = no_decay == nullptr || no_decay[piece.offset / kParameterAlignment] == 0;
  const float rate = rates[piece.segment];
  bool finite = true;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < piece.elements; i += kThreads) {
    const std::int64_t at = piece.offset + i;
    const float value = fmaf(-rate, factors.direction(w[at], m[at], v[at], decays), w[at]);
    w[at] = value;
    finite = finite && isfinite(value);
  }
  if (!finite && nonfinite != nullptr) *nonfinite = 1.0;
}

}  // namespace

void CudaBackend::run(const ops::SgdUpdate& op) {
  const auto* g = op.gradients.data<float>();
  if (op.momentum) {
    update_all(*state_, SgdStep{op.hyperparameters}, op.values.size(), g, op.nonfinite, op.no_decay,
               op.values.data<float>(), op.momentum.data<float>());
  } else {
    update_all(*state_, PlainSgdStep{op.hyperparameters}, op.values.size(), g, op.nonfinite, op.no_decay,
               op.values.data<float>());
  }
}

void CudaBackend::run(const ops::AdamwUpdate& op) {
  const double lr = op.hyperparameters.lr, decay = op.hyperparameters.weight_decay;
  const AdamwStep step{static_cast<float>(1.0 - lr * decay),
                       static_cast<float>(op.hyperparameters.beta1),
                       static_cast<float>(1.0 - op.hyperparameters.beta1),
                       static_cast<float>(op.hyperparameters.beta2),
                       static_cast<float>(1.0 - op.hyperparameters.beta2),
                       static_cast<float>(lr / op.hyperparameters.bias1),
                       static_cast<float>(std::sqrt(op.hyperparameters.bias2)),
                       op.hyperparameters.epsilon};
  update_all(*state_, step, op.values.size(), op.gradients.data<float>(), op.nonfinite, op.no_decay,
             op.values.data<float>(), op.first_moment.data<float>(), op.second_moment.data<float>());
}

void CudaBackend::run(const ops::LarsUpdate& op) {
  const SegmentTable& table = segment_table(op.segments);
  if (table.pieces == 0) return;
  float *w = op.values.data<float>(), *v = op.momentum.data<float>();
  const auto* g = op.gradients.data<float>();
  const auto* pieces = table.piece_rows.data<const PieceRow>();
  const auto* rows = table.segment_rows.data<const SegmentRow>();
  const auto count = static_cast<std::int64_t>(op.segments.size());
  const Tensor squares = tensor({2, table.pieces}, DType::kF64), rates = tensor({count}, DType::kF32);
  auto* w_squares = squares.data<double>();
  double* g_squares = w_squares + table.pieces;
  const auto blocks = static_cast<unsigned>(table.pieces);
  gpu::launch_kernel(*state_, blocks, kThreads, lars_squares_kernel, pieces, rows, w, g, w_squares, g_squares);
  const auto rate_blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  gpu::launch_kernel(*state_, rate_blocks, kThreads, lars_rates_kernel, op.hyperparameters, rows, count, w_squares,
                     g_squares, rates.data<float>());
  gpu::launch_kernel(*state_, blocks, kThreads, lars_update_kernel, op.hyperparameters, pieces, rows,
                     rates.data<float>(), w, g, v, op.nonfinite.data<double>());
}

void CudaBackend::run(const ops::LambUpdate& op) {
  const SegmentTable& table = segment_table(op.segments);
  if (table.pieces == 0) return;
  const auto& u = op.hyperparameters;
  const LambFactors factors{static_cast<float>(u.beta1),
                            static_cast<float>(1.0 - u.beta1),
                            static_cast<float>(u.beta2),
                            static_cast<float>(1.0 - u.beta2),
                            static_cast<float>(u.bias1),
                            static_cast<float>(std::sqrt(u.bias2)),
                            u.epsilon,
                            u.weight_decay};
  float *w = op.values.data<float>(), *m = op.first_moment.data<float>(), *v = op.second_moment.data<float>();
  const auto* no_decay = op.no_decay.data<std::uint8_t>();
  const auto* pieces = table.piece_rows.data<const PieceRow>();
  const auto* rows = table.segment_rows.data<const SegmentRow>();
  const auto count = static_cast<std::int64_t>(op.segments.size());
  const Tensor squares = tensor({2, table.pieces}, DType::kF64), rates = tensor({count}, DType::kF32);
  auto* w_squares = squares.data<double>();
  double* u_squares = w_squares + table.pieces;
  const auto blocks = static_cast<unsigned>(table.pieces);
  gpu::launch_kernel(*state_, blocks, kThreads, lamb_moments_kernel, factors, pieces, rows, w,
                     op.gradients.data<const float>(), m, v, no_decay, w_squares, u_squares);
  const auto rate_blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  gpu::launch_kernel(*state_, rate_blocks, kThreads, lamb_rates_kernel, u.lr, rows, count, w_squares, u_squares,
                     rates.data<float>());
  gpu::launch_kernel(*state_, blocks, kThreads, lamb_update_kernel, factors, pieces, rates.data<const float>(), w, m, v,
                     no_decay, op.nonfinite.data<double>());
}

}  // namespace convoy
