// SPDX-License-Identifier: Apache-2.0
//
// Checks the status of CUDA, cuDNN and cuBLAS calls: a failure becomes an Error with the call, its file and line, the
// library's message and the GPU. Included by files of this folder and by parallel/nccl_*.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "layers/base/error.h"

namespace convoy {

/// "GPU 0 (NVIDIA H200)"; never throws.
[[nodiscard]] std::string current_gpu() noexcept;

/// Throws an Error: "cudaMalloc(...) at memory.cpp:40 on GPU 0 (NVIDIA H200): out of memory".
[[noreturn]] void fail_gpu_call(const char* call, const char* file, int line, const std::string& words);

}  // namespace convoy

#define CONVOY_CUDA_CHECK(call)                                                              \
  do {                                                                                       \
    const cudaError_t convoy_status = (call);                                                \
    if (convoy_status != cudaSuccess) {                                                      \
      ::convoy::fail_gpu_call(#call, __FILE__, __LINE__, cudaGetErrorString(convoy_status)); \
    }                                                                                        \
  } while (false)

#define CONVOY_CUDNN_CHECK(call)                                                              \
  do {                                                                                        \
    const cudnnStatus_t convoy_status = (call);                                               \
    if (convoy_status != CUDNN_STATUS_SUCCESS) {                                              \
      ::convoy::fail_gpu_call(#call, __FILE__, __LINE__, cudnnGetErrorString(convoy_status)); \
    }                                                                                         \
  } while (false)

#define CONVOY_CUBLAS_CHECK(call)                                                               \
  do {                                                                                          \
    const cublasStatus_t convoy_status = (call);                                                \
    if (convoy_status != CUBLAS_STATUS_SUCCESS) {                                               \
      ::convoy::fail_gpu_call(#call, __FILE__, __LINE__, cublasGetStatusString(convoy_status)); \
    }                                                                                           \
  } while (false)
