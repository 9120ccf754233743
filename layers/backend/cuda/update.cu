// SPDX-License-Identifier: Apache-2.0
//
// Optimizer updates of the CUDA backend over flat float32 buffers, each in one pass. Which products are rounded is
// written out (fmaf), so that an element's result does not depend on where it lies in the buffer, and a network cut
// into stages trains to the same bits.
#include <algorithm>
#include <cmath>

#include "layers/backend/cuda/block_reduce.cuh"
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/element.cuh"

namespace convoy {

namespace {

using gpu::kThreads;
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

// A block's share of LARS's work. A segment's pieces are the same whatever surrounds it.
constexpr std::int64_t kPieceElements = 32768;
struct PieceRow {
  std::int64_t offset;
  std::int32_t elements, segment;
};
struct SegmentRow {
  std::int64_t first_piece, end_piece;
  std::int32_t adapt;
};

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
    double w_sum = 0.0, g_sum = 0.0;
    for (std::int64_t p = segment.first_piece; p < segment.end_piece; ++p) {
      w_sum += w_squares[p];
      g_sum += g_squares[p];
    }
    const double w_norm = sqrt(w_sum), g_norm = sqrt(g_sum);
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

const CudaBackend::LarsTable& CudaBackend::lars_table(std::span<const Segment> segments) {
  const auto same = [](const Segment& a, const Segment& b) {
    return a.offset == b.offset && a.elements == b.elements && a.adapt == b.adapt;
  };
  for (const LarsTable& table : lars_tables_) {
    if (std::equal(table.segments.begin(), table.segments.end(), segments.begin(), segments.end(), same)) return table;
  }
  std::vector<PieceRow> pieces;
  std::vector<SegmentRow> rows;
  for (const Segment& segment : segments) {
    SegmentRow row{static_cast<std::int64_t>(pieces.size()), 0, segment.adapt ? 1 : 0};
    for (std::int64_t at = 0; at < segment.elements; at += kPieceElements) {
      pieces.push_back({segment.offset + at, static_cast<std::int32_t>(std::min(kPieceElements, segment.elements - at)),
                        static_cast<std::int32_t>(rows.size())});
    }
    row.end_piece = static_cast<std::int64_t>(pieces.size());
    rows.push_back(row);
  }
  const auto upload = [&](const auto& host) {
    Tensor device = tensor({static_cast<std::int64_t>(host.size() * sizeof(host[0]))}, DType::kU8);
    copy_from_host(host.data(), device);
    return device;
  };
  lars_tables_.push_back({std::vector<Segment>(segments.begin(), segments.end()),
                          static_cast<std::int64_t>(pieces.size()), upload(pieces), upload(rows)});
  return lars_tables_.back();
}

void CudaBackend::run(const ops::LarsUpdate& op) {
  const LarsTable& table = lars_table(op.segments);
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

}  // namespace convoy
