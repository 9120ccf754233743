// SPDX-License-Identifier: Apache-2.0
//
// The parameters of a flat buffer as kernels see them: cut into pieces, one for each block, with tables of the pieces
// and of the parameters that they belong to (CudaBackend::segment_table). A segment's pieces are the same whatever
// surrounds it.
#pragma once

#include <cstdint>

#include "layers/backend/cuda/block_reduce.cuh"

namespace convoy::gpu {

constexpr std::int64_t kPieceElements = 32768;

struct PieceRow {
  std::int64_t offset;
  std::int32_t elements, segment;
};

struct SegmentRow {
  std::int64_t first_piece, end_piece;
  std::int32_t adapt;
};

/// The sum of the pieces of a segment, in order.
__device__ inline double sum_of_pieces(const SegmentRow& segment, const double* sums) {
  double sum = 0.0;
  for (std::int64_t p = segment.first_piece; p < segment.end_piece; ++p) sum += sums[p];
  return sum;
}

}  // namespace convoy::gpu
