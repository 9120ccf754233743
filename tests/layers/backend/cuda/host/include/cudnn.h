// SPDX-License-Identifier: Apache-2.0
//
// Stands in for cuDNN's header: a handle that does nothing. The convolutions are in ../plans.cpp.
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

enum cudnnStatus_t { CUDNN_STATUS_SUCCESS };
using cudnnHandle_t = struct OnHostCudnn*;
inline cudnnStatus_t cudnnCreate(cudnnHandle_t* /*handle*/) { return CUDNN_STATUS_SUCCESS; }
inline cudnnStatus_t cudnnDestroy(cudnnHandle_t /*handle*/) { return CUDNN_STATUS_SUCCESS; }
inline cudnnStatus_t cudnnSetStream(cudnnHandle_t /*handle*/, cudaStream_t /*stream*/) { return CUDNN_STATUS_SUCCESS; }
inline const char* cudnnGetErrorString(cudnnStatus_t /*status*/) { return ""; }
inline std::size_t cudnnGetVersion() { return 0; }
