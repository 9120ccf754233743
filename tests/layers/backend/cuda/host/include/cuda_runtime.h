// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the header that nvcc includes before every .cu file: CUDA's additions to C++ as far as our kernels use
// them, for a host compiler. Kernels run on fibers (grid.h).
#pragma once

#include <cuda_runtime_api.h>
#include <math.h>  // kernels call fmaf(), isnan() and others without std::

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "tests/layers/backend/cuda/host/grid.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

/// In place of __shared__ (layers/backend/cuda/launch.cuh): NaN in every block until a thread has written it.
#define CONVOY_SHARED(type, name, extents)                            \
  static ::convoy::on_host::SharedMemory<type extents> name##_memory; \
  auto& name = name##_memory.of_block()

inline void __syncthreads(std::source_location place = std::source_location::current()) {
  convoy::on_host::block_barrier(place);
}
inline void __syncwarp(unsigned mask = 0xffffffffU, std::source_location place = std::source_location::current()) {
  convoy::on_host::warp_barrier(mask, place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta,
                   std::source_location place = std::source_location::current()) {
  const unsigned lane = convoy::on_host::lane();
  return convoy::on_host::shuffle(mask, value, lane + delta < convoy::on_host::kWarp ? lane + delta : lane, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned flipped,
                  std::source_location place = std::source_location::current()) {
  return convoy::on_host::shuffle(mask, value, convoy::on_host::lane() ^ flipped, place);
}
template <class T>
T atomicAdd(T* place, T value) {
  const T before = *place;  // no other thread of the grid runs meanwhile
  *place = before + value;
  return before;
}
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// The build compiles kernels without contraction to fused multiply-adds.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float normcdff(float x) { return static_cast<float>(0.5 * erfc(-static_cast<double>(x) / 1.4142135623730951)); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a < b ? b : a; }

/// Copies the arguments, of which `arguments` points at one value per parameter.
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t /*shared_bytes*/, cudaStream_t stream) {
  const auto copied = [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::tuple<Parameters...>(*static_cast<Parameters*>(arguments[kIndex])...);
  }
  (std::index_sequence_for<Parameters...>{});
  return convoy::on_host::launch_grid(stream, grid, block, [kernel, copied] { std::apply(kernel, copied); });
}
