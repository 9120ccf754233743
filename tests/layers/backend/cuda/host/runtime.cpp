// SPDX-License-Identifier: Apache-2.0
//
// The CUDA runtime on host memory: one device, whose work is done when a call returns.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <ratio>
#include <string>

#include "tests/layers/backend/cuda/host/device_memory.h"
#include "tests/layers/backend/cuda/host/grid.h"

namespace {

#ifdef CONVOY_ADDRESS_SANITIZER
constexpr std::size_t kGuardBytes = 0;
#else
constexpr std::size_t kGuardBytes = 64;
#endif
constexpr std::size_t kAlignment = 256;
constexpr int kGuard = 0xA5;

// A few, so that small arrays take several rounds of a grid-stride loop and rows are cut into slices.
constexpr int kMultiprocessors = 3;

std::map<std::byte*, std::size_t>& blocks() {  // never destroyed: backends may be static
  static auto* all = new std::map<std::byte*, std::size_t>;
  return *all;
}

bool is_whole(const std::byte* guard) {
  return std::all_of(guard, guard + kGuardBytes, [](std::byte b) { return b == std::byte{kGuard}; });
}

}  // namespace

std::string convoy::on_host::damaged_guard() {
  for (const auto& [data, bytes] : blocks()) {
    const bool before = is_whole(data - kGuardBytes), behind = is_whole(data + bytes);
    if (before && behind) continue;
    std::memset(data - kGuardBytes, kGuard, kGuardBytes);
    std::memset(data + bytes, kGuard, kGuardBytes);
    return fmt::format("something wrote {} a block of {} bytes of device memory", before ? "behind" : "before", bytes);
  }
  return {};
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  std::strcpy(properties->name, "the host");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? kMultiprocessors : 8;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorLaunchFailure:
    case cudaErrorInvalidConfiguration: return convoy::on_host::failure();
    case cudaErrorMemoryAllocation: return "out of memory";
    default: return "an error of the CUDA runtime";
  }
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const std::size_t head = kGuardBytes == 0 ? 0 : kAlignment;
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, head + bytes + kGuardBytes) != 0) return cudaErrorMemoryAllocation;
  std::byte* const start = static_cast<std::byte*>(memory) + head;
  std::memset(start - kGuardBytes, kGuard, kGuardBytes);
  std::memset(start, 0xff, bytes);
  std::memset(start + bytes, kGuard, kGuardBytes);
  blocks().emplace(start, bytes);
  *data = start;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  auto* start = static_cast<std::byte*>(data);
  if (blocks().erase(start) == 0) return cudaErrorInvalidValue;
  std::free(start - (kGuardBytes == 0 ? 0 : kAlignment));
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total) {
  *left = *total = 0;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned /*flags*/) {
  *data = ::operator new(bytes, std::nothrow);
  return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* data) {
  ::operator delete(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t /*stream*/) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t /*stream*/) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new OnHostStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t /*stream*/, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t /*stream*/, cudaEvent_t /*event*/, unsigned /*flags*/) {
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new OnHostEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t /*stream*/) {
  event->recorded = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t /*event*/) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->recorded - start->recorded).count();
  return cudaSuccess;
}
