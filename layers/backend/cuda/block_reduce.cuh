// SPDX-License-Identifier: Apache-2.0
//
// Sums and maxima over the threads of a block, in a fixed tree: the same values give the same bits. The block has one
// dimension and whole warps.
#pragma once

#include <cmath>

#include "layers/backend/cuda/launch.cuh"

namespace convoy::gpu {

/// `combine` over the values of all threads, for all of them. `identity` changes nothing that it is combined with.
template <class Combine>
__device__ double block_reduce(double value, double identity, Combine combine) {
  CONVOY_SHARED(double, of_warp, [32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) {
    value = combine(value, __shfl_down_sync(0xffffffffU, value, offset));
  }
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  if (warp == 0) {
    value = lane < warps ? of_warp[lane] : identity;
    for (int offset = 16; offset > 0; offset /= 2) {
      value = combine(value, __shfl_down_sync(0xffffffffU, value, offset));
    }
    if (lane == 0) of_warp[0] = value;
  }
  __syncthreads();
  value = of_warp[0];
  __syncthreads();  // before the next call writes
  return value;
}

struct Sum {
  __device__ double operator()(double a, double b) const { return a + b; }
};
struct Maximum {
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};
struct Minimum {
  __device__ double operator()(double a, double b) const { return fmin(a, b); }
};

__device__ inline double block_sum(double value) { return block_reduce(value, 0.0, Sum{}); }
/// Of values that are numbers: a NaN counts as no value.
__device__ inline double block_max(double value) { return block_reduce(value, -INFINITY, Maximum{}); }
__device__ inline double block_min(double value) { return block_reduce(value, INFINITY, Minimum{}); }

}  // namespace convoy::gpu
