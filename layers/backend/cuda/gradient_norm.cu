// SPDX-License-Identifier: Apache-2.0
//
// Clipping by the global norm on the GPU: the sums of squares of each parameter in float64, the factor, and the scaling
// that reads it. The host reads none of them.
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

__global__ void __launch_bounds__(kThreads) piece_squares_kernel(const PieceRow* pieces, const float* x, double* sums) {
  const PieceRow piece = pieces[blockIdx.x];
  double sum = 0.0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < piece.elements; i += kThreads) {
    const double value = x[piece.offset + i];
    sum = fma(value, value, sum);
  }
  sum = gpu::block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    segment_sums_kernel(const SegmentRow* segments, std::int64_t count, const double* sums, double* squares) {
  const std::int64_t s = gpu::grid_thread();
  if (s < count) squares[s] = gpu::sum_of_pieces(segments[s], sums);
}

// One block: the tree of the sum depends on the number of parameters alone.
__global__ void __launch_bounds__(kThreads)
    clip_factor_kernel(double clip_norm, const double* squares, std::int64_t count, double* norm, float* factor) {
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += squares[i];
  sum = gpu::block_sum(sum);
  if (threadIdx.x != 0) return;
  const double root = sqrt(sum), ratio = clip_norm / (root + ops::kClipEpsilon);
  *norm = root;
  *factor = ratio >= 1.0 ? 1.0F : static_cast<float>(ratio);
}

__global__ void __launch_bounds__(kThreads)
    scale_by_kernel(const float* factor, float* x, std::int64_t vectors, std::int64_t count) {
  constexpr int kCount = gpu::kLanes<float>;
  const float by = *factor;
  if (by == 1.0F) return;
  for (std::int64_t i = gpu::grid_thread(); i < vectors; i += gpu::grid_threads()) {
    auto vector = gpu::load_vector<kCount>(x, i);
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) vector.lanes[lane] *= by;
    gpu::store_vector(vector, x, i);
  }
  for (std::int64_t i = vectors * kCount + gpu::grid_thread(); i < count; i += gpu::grid_threads()) x[i] *= by;
}

}  // namespace

const CudaBackend::SegmentTable& CudaBackend::segment_table(std::span<const Segment> segments) {
  const auto same = [](const Segment& a, const Segment& b) {
    return a.offset == b.offset && a.elements == b.elements && a.adapt == b.adapt;
  };
  for (const SegmentTable& table : segment_tables_) {
    if (std::equal(table.segments.begin(), table.segments.end(), segments.begin(), segments.end(), same)) return table;
  }
  std::vector<PieceRow> pieces;
  std::vector<SegmentRow> rows;
  for (const Segment& segment : segments) {
    SegmentRow row{static_cast<std::int64_t>(pieces.size()), 0, segment.adapt ? 1 : 0};
    for (std::int64_t at = 0; at < segment.elements; at += gpu::kPieceElements) {
      pieces.push_back({segment.offset + at,
                        static_cast<std::int32_t>(std::min(gpu::kPieceElements, segment.elements - at)),
                        static_cast<std::int32_t>(rows.size())});
    }
    row.end_piece = static_cast<std::int64_t>(pieces.size());
    rows.push_back(row);
  }
  const auto upload = [&](const auto& host) {
    if (host.empty()) return Tensor();
    Tensor device = tensor({static_cast<std::int64_t>(host.size() * sizeof(host[0]))}, DType::kU8);
    copy_from_host(host.data(), device);
    return device;
  };
  segment_tables_.push_back({std::vector<Segment>(segments.begin(), segments.end()),
                             static_cast<std::int64_t>(pieces.size()), upload(pieces), upload(rows)});
  return segment_tables_.back();
}

void CudaBackend::run(const ops::SquaredNorms& op) {
  const SegmentTable& table = segment_table(op.segments);
  const auto count = static_cast<std::int64_t>(op.segments.size());
  if (count == 0) return;
  const Tensor sums = tensor({std::max<std::int64_t>(1, table.pieces)}, DType::kF64);
  if (table.pieces > 0) {
    gpu::launch_kernel(*state_, static_cast<unsigned>(table.pieces), kThreads, piece_squares_kernel,
                       table.piece_rows.data<const PieceRow>(), op.x.data<const float>(), sums.data<double>());
  }
  gpu::launch_kernel(*state_, static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, segment_sums_kernel,
                     table.segment_rows.data<const SegmentRow>(), count, sums.data<const double>(),
                     op.squares.data<double>());
}

void CudaBackend::run(const ops::ClipFactor& op) {
  gpu::launch_kernel(*state_, 1, kThreads, clip_factor_kernel, op.clip_norm, op.squares.data<const double>(),
                     op.squares.size(), op.norm.data<double>(), op.factor.data<float>());
}

void CudaBackend::run(const ops::ScaleBy& op) {
  if (op.x.size() == 0) return;
  float* x = op.x.data<float>();
  const std::int64_t vectors = gpu::whole_vectors(op.x.size(), x);
  const std::int64_t items = std::max(vectors, op.x.size() - vectors * gpu::kLanes<float>);
  gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, items), kThreads, scale_by_kernel,
                     op.factor.data<const float>(), x, vectors, op.x.size());
}

}  // namespace convoy
