// SPDX-License-Identifier: Apache-2.0
//
// How kernels cover an activation seen as rows of contiguous channels. A block is `width` threads side by side, each
// with its own few channels, times `height` rows; the grid's x takes the block along the channels, its y cuts the rows
// into slices. A thread stays with its channels, so what belongs to them lies in registers.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "layers/backend/cuda/element.cuh"

namespace convoy::gpu {

/// rows x channels, cut into slices of `slice_rows` rows, the last one shorter. None is empty.
struct RowSlices {
  std::int64_t rows = 0, channels = 0, slice_rows = 0;
  __host__ __device__ std::int64_t rows_of(std::int64_t slice) const {
    const std::int64_t rest = rows - slice * slice_rows;
    return rest < slice_rows ? rest : slice_rows;
  }
};

struct RowTiles {
  RowSlices slices;
  dim3 grid, block;
};

/// Tiles for threads of `lanes` channels each, with at most `blocks` blocks per multiprocessor where the rows are cut.
inline RowTiles row_tiles(const CudaState& state, const Shape& shape, int lanes, int blocks) {
  RowTiles tiles;
  RowSlices& slices = tiles.slices;
  slices.rows = shape[0] * shape.pixels();
  slices.channels = shape[1];
  const std::int64_t vectors = slices.channels / lanes;
  const auto columns = [&](std::int64_t width) { return (vectors + width - 1) / width; };
  // A whole warp side by side unless fewer leave fewer threads idle.
  std::int64_t width = 32;
  for (const std::int64_t narrower : {16, 8}) {
    if (columns(narrower) * narrower < columns(width) * width) width = narrower;
  }
  width = std::min(width, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(vectors))));
  const std::int64_t height = kThreads / width;
  const std::int64_t least_rows = 4 * height;  // of a slice, so that threads have something to do
  const std::int64_t wanted = std::max<std::int64_t>(1, std::int64_t{blocks} * state.multiprocessors / columns(width));
  const std::int64_t count =
      std::clamp<std::int64_t>((slices.rows + least_rows - 1) / least_rows, 1, std::min<std::int64_t>(wanted, 65535));
  slices.slice_rows = std::max<std::int64_t>(1, (slices.rows + count * height - 1) / (count * height)) * height;
  tiles.grid = dim3(static_cast<unsigned>(columns(width)),
                    static_cast<unsigned>((slices.rows + slices.slice_rows - 1) / slices.slice_rows));
  tiles.block = dim3(static_cast<unsigned>(width), static_cast<unsigned>(height));
  return tiles;
}

/// The first channel of this thread of `kCount` channels.
template <int kCount>
__device__ std::int64_t thread_channel() {
  return (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
}

template <int kCount, class T>
__device__ void load_lanes(const T* place, float (&values)[kCount]) {
  const auto vector = load_vector<kCount>(place, 0);
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) values[lane] = load(vector.lanes[lane]);
}

template <int kCount, class T>
__device__ void store_lanes(const float (&values)[kCount], T* place) {
  Vector<T, kCount> vector;
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) store(values[lane], &vector.lanes[lane]);
  store_vector(vector, place, 0);
}

/// Calls f(std::integral_constant<int, lanes>): 16 bytes of T, or kMost elements if that is less, where every row of
/// all these arrays (null: not there) starts aligned and is made of such vectors, else one element.
template <class T, int kMost = kLanes<T>, class F, class... Array>
void dispatch_lanes(std::int64_t channels, F&& f, const Array*... arrays) {
  constexpr int kCount = kMost < kLanes<T> ? kMost : kLanes<T>;
  const bool aligned = ((reinterpret_cast<std::uintptr_t>(arrays) % 16 == 0) && ...);
  if (aligned && channels % kCount == 0) {
    f(std::integral_constant<int, kCount>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

/// The second stage of reductions over rows: a block of 32 channels by 32 lanes, which share the slices.
constexpr int kMergeChannels = 32, kMergeLanes = 32;

inline dim3 merge_grid(std::int64_t channels) {
  return dim3(static_cast<unsigned>((channels + kMergeChannels - 1) / kMergeChannels));
}

/// The sum of `value` over the lanes of this thread's channel, in the order of the lanes, for all of them.
__device__ inline double sum_over_lanes(double value) {
  CONVOY_SHARED(double, of_lane, [kMergeLanes][kMergeChannels + 1]);
  of_lane[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  double sum = 0.0;
  for (int lane = 0; lane < kMergeLanes; ++lane) sum += of_lane[lane][threadIdx.x];
  __syncthreads();  // before the next call writes
  return sum;
}

}  // namespace convoy::gpu
