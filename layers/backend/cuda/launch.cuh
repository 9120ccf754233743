// SPDX-License-Identifier: Apache-2.0
//
// How kernels are started, and how they declare memory that a block shares: the two places where CUDA's syntax is not
// C++. tests/layers/backend/cuda/host compiles the same kernels with a host compiler and its own cuda_runtime.h.
#pragma once

#include <type_traits>

#include "layers/backend/cuda/cuda_check.h"
#include "layers/backend/cuda/cuda_state.h"

/// An uninitialised array in shared memory: CONVOY_SHARED(float, of_thread, [2][kThreads]);
#ifndef CONVOY_SHARED
#define CONVOY_SHARED(type, name, extents) __shared__ type name extents
#endif

namespace convoy::gpu {

/// Puts a kernel on the compute stream; throws when it cannot be started, or something before it went wrong.
template <class... Parameters>
void launch_kernel(const CudaState& state, dim3 grid, dim3 block, void (*kernel)(Parameters...),
                   std::type_identity_t<Parameters>... arguments) {
  void* addresses[] = {&arguments...};
  CONVOY_CUDA_CHECK(cudaLaunchKernel(kernel, grid, block, addresses, 0, state.stream));
}

}  // namespace convoy::gpu
