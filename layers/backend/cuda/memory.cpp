// SPDX-License-Identifier: Apache-2.0
//
// Memory of the CUDA backend: device memory, and copies between it and the host, which never wait for compute on their
// way in. Small arrays ride on the compute stream; large ones overlap with it (uploads.h).
#include <algorithm>
#include <cstring>

#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/cuda_check.h"
#include "layers/backend/cuda/cuda_state.h"
#include "layers/backend/cuda/uploads.h"

namespace convoy {

void* CudaBackend::DeviceMemory::allocate(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // else the next check of a launch would find it
    std::size_t left = 0, total = 0;
    CONVOY_CUDA_CHECK(cudaMemGetInfo(&left, &total));
    fail(
        "out of memory on {}: {:.1f} MiB more were asked for, and {:.1f} MiB are free (a smaller batch or more "
        "microbatches need less)",
        current_gpu(), static_cast<double>(bytes) / (1 << 20), static_cast<double>(left) / (1 << 20));
  }
  if (status != cudaSuccess) fail_gpu_call("cudaMalloc", __FILE__, __LINE__, cudaGetErrorString(status));
  return data;
}

void CudaBackend::DeviceMemory::release(void* data) noexcept { cudaFree(data); }

void CudaBackend::require_not_recording(const char* operation) const {
  if (state_->capturing()) {
    fail("{} was called while work was being recorded and cannot be part of it: call it before record()", operation);
  }
}

void CudaBackend::copy_from_host(const void* source, const Tensor& destination) {
  const std::size_t bytes = destination.bytes();
  if (bytes == 0) return;
  require_not_recording("copy_from_host");
  if (bytes > PinnedStaging::kMinBytes) {
    if (uploads_ == nullptr) uploads_ = std::make_unique<Uploads>(*state_, *this);
    uploads_->copy(static_cast<const std::byte*>(source), bytes, destination.data<std::byte>());
    return;
  }
  void* pinned = state_->staging.acquire(bytes);
  std::memcpy(pinned, source, bytes);
  CONVOY_CUDA_CHECK(cudaMemcpyAsync(destination.raw(), pinned, bytes, cudaMemcpyHostToDevice, state_->stream));
  state_->staging.in_use_by(state_->stream);
}

void CudaBackend::copy_to_host(const Tensor& source, void* destination) {
  const std::size_t bytes = source.bytes();
  if (bytes == 0) return;
  require_not_recording("copy_to_host");
  finish_gradients();
  for (std::size_t at = 0; at < bytes; at += Uploads::kPieceBytes) {
    const std::size_t count = std::min(Uploads::kPieceBytes, bytes - at);
    void* pinned = state_->downloads.acquire(count);
    CONVOY_CUDA_CHECK(
        cudaMemcpyAsync(pinned, source.data<std::byte>() + at, count, cudaMemcpyDeviceToHost, state_->stream));
    state_->synchronize();
    std::memcpy(static_cast<std::byte*>(destination) + at, pinned, count);
  }
}

void CudaBackend::zero(const Tensor& x) {
  if (x.bytes() > 0) CONVOY_CUDA_CHECK(cudaMemsetAsync(x.raw(), 0, x.bytes(), state_->stream));
}

// Small tensors are parts of a block that one call has cleared.
Tensor CudaBackend::zeros(const Shape& shape, DType dtype) {
  constexpr std::int64_t kBlock = kZeroedTogether;
  const std::int64_t bytes = shape.size() * static_cast<std::int64_t>(dtype_size(dtype));
  if (bytes > kZeroedPart) return Backend::zeros(shape, dtype);
  if (!zeros_ || zeros_used_ + bytes > kBlock) {
    zeros_ = Backend::zeros({kBlock}, DType::kU8);
    zeros_used_ = 0;
  }
  const Tensor part = zeros_.view(zeros_used_, {bytes});
  zeros_used_ += (bytes + kZeroedAlignment - 1) / kZeroedAlignment * kZeroedAlignment;
  return part.as(shape, dtype);
}

void CudaBackend::synchronize() { state_->synchronize(); }

}  // namespace convoy
