// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the CUDA runtime's header: what layers/backend/cuda uses of it, on host memory (runtime.cpp). All work
// is done when a call returns, so streams and events have nothing to order.
#pragma once

#include <chrono>
#include <cstddef>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719
};

struct OnHostStream {};
struct OnHostEvent {
  std::chrono::steady_clock::time_point recorded;
};
using cudaStream_t = OnHostStream*;
using cudaEvent_t = OnHostEvent*;

struct cudaDeviceProp {
  char name[256];
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrComputeCapabilityMinor
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };
enum : unsigned { cudaEventDisableTiming, cudaStreamNonBlocking, cudaHostAllocDefault, cudaHostAllocMapped };

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaRuntimeGetVersion(int* version);

/// Of the last failure where there is more to say than its code: a kernel's place and what it did.
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

/// Aligned to 256 bytes, filled with NaN, between guards that every launch checks.
cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total);
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
