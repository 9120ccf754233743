// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA kernels share about elements: float32, bfloat16 or float16 in memory and float in registers, moved 16
// bytes at a time where the addresses allow it, and how many blocks to start. A kernel takes the first `vectors`
// vectors of its arrays whole and what is left element by element; views into flat buffers may start at any element,
// and then nothing is taken whole. In a namespace of its own, as the CPU kernels have functions of the same names.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "layers/backend/cuda/cuda_state.h"
#include "layers/backend/cuda/launch.cuh"
#include "layers/base/error.h"
#include "layers/base/shape.h"

namespace convoy::gpu {

/// y + scale * x with the product rounded first, so that sums do not depend on who adds: one rank's running sum or a
/// reduction.
__device__ inline float add_product(float y, float scale, float x) { return __fadd_rn(y, __fmul_rn(scale, x)); }

constexpr int kThreads = 256;  // of a block, where a kernel has no reason for another number

__device__ inline float load(float value) { return value; }
__device__ inline float load(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float load(__half value) { return __half2float(value); }

/// Rounds to nearest even; a NaN stays one; too large for float16 becomes infinite.
__device__ inline void store(float value, float* slot) { *slot = value; }
__device__ inline void store(float value, __nv_bfloat16* slot) { *slot = __float2bfloat16_rn(value); }
__device__ inline void store(float value, __half* slot) { *slot = __float2half_rn(value); }

/// max(0, value); a NaN stays one.
__device__ inline float positive_part(float value) { return value < 0.0F ? 0.0F : value; }

/// Elements that are loaded and stored at once; more than 16 bytes take several instructions.
template <class T, int kCount>
struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Vector {
  T lanes[kCount];
};

/// Elements of a vector over arrays of these types: 16 bytes of the smallest.
template <class... T>
constexpr int kLanes = static_cast<int>(16 / std::min({sizeof(T)...}));

template <int kCount, class T>
__device__ Vector<T, kCount> load_vector(const T* array, std::int64_t index) {
  return reinterpret_cast<const Vector<T, kCount>*>(array)[index];
}
template <int kCount, class T>
__device__ void store_vector(const Vector<T, kCount>& vector, T* array, std::int64_t index) {
  reinterpret_cast<Vector<T, kCount>*>(array)[index] = vector;
}

template <class T>
__host__ __device__ bool is_aligned(const T* array, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(array) % bytes == 0;
}

/// How many vectors of kLanes<T...> elements `count` elements of all these arrays hold: 0 unless all are aligned.
template <class... T>
__host__ __device__ std::int64_t whole_vectors(std::int64_t count, const T*... arrays) {
  return (is_aligned(arrays, 16) && ...) ? count / kLanes<T...> : 0;
}

/// This thread among all of the grid, and their number: the start and the step of a grid-stride loop.
__device__ inline std::int64_t grid_thread() { return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::int64_t grid_threads() { return std::int64_t{gridDim.x} * blockDim.x; }

/// Blocks for a grid-stride loop over `items`, at least 1: enough to fill the GPU a few times over.
inline unsigned grid_blocks(const CudaState& state, std::int64_t items, int threads = kThreads) {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, 32 * std::int64_t{state.multiprocessors}));
}

/// Calls f(T{}) with the type of an activation.
template <class F>
void dispatch_activation(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32: f(float{}); return;
    case DType::kBF16: f(__nv_bfloat16{}); return;
    case DType::kF16: f(__half{}); return;
    default: fail("activations of type {} are not supported on a GPU", dtype_name(dtype));
  }
}

}  // namespace convoy::gpu
