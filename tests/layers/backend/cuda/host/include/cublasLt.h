// SPDX-License-Identifier: Apache-2.0
//
// Stands in for cuBLASLt's header: a handle that does nothing. The matrix products are in ../plans.cpp.
#pragma once

#include <cstddef>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS };
using cublasLtHandle_t = struct OnHostCublas*;
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* /*handle*/) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t /*handle*/) { return CUBLAS_STATUS_SUCCESS; }
inline const char* cublasGetStatusString(cublasStatus_t /*status*/) { return ""; }
inline std::size_t cublasLtGetVersion() { return 0; }
