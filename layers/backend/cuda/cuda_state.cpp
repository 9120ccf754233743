// SPDX-License-Identifier: Apache-2.0
//
// Streams, handles and pinned memory of the CUDA backend, and how the host waits for the GPU: it polls instead of
// blocking in the driver, so that a communicator can see meanwhile that a partner is gone.
#include "layers/backend/cuda/cuda_state.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "layers/backend/cuda/cuda_check.h"

namespace convoy {

PinnedStaging::~PinnedStaging() {
  for (Piece& piece : pieces_) {
    if (piece.done != nullptr) cudaEventDestroy(piece.done);
    if (piece.data != nullptr) cudaFreeHost(piece.data);
  }
}

void* PinnedStaging::acquire(std::size_t bytes) {
  last_ = next_;
  next_ = (next_ + 1) % pieces_.size();
  Piece& piece = pieces_[last_];
  if (piece.done == nullptr) CONVOY_CUDA_CHECK(cudaEventCreateWithFlags(&piece.done, cudaEventDisableTiming));
  state_.wait_for(piece.done);
  if (piece.bytes < bytes) {
    if (piece.data != nullptr) CONVOY_CUDA_CHECK(cudaFreeHost(piece.data));
    piece.data = nullptr;
    piece.bytes = 0;
    const std::size_t wanted = std::max(bytes, kMinBytes);
    CONVOY_CUDA_CHECK(cudaHostAlloc(&piece.data, wanted, cudaHostAllocDefault));
    piece.bytes = wanted;
  }
  return piece.data;
}

void PinnedStaging::in_use_by(cudaStream_t stream) { CONVOY_CUDA_CHECK(cudaEventRecord(pieces_[last_].done, stream)); }

CudaState::CudaState(int device_index, DType compute_type, bool with_tf32, bool repeatable)
    : device(device_index), compute(compute_type), tf32(with_tf32), deterministic(repeatable) {
  CONVOY_CUDA_CHECK(cudaSetDevice(device));
  CONVOY_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  CONVOY_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CONVOY_CUDA_CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
  CONVOY_CUDA_CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
  CONVOY_CUDA_CHECK(cudaEventCreateWithFlags(&computed, cudaEventDisableTiming));
  void* memory = nullptr;
  CONVOY_CUDA_CHECK(cudaHostAlloc(&memory, sizeof(BadLabel), cudaHostAllocMapped));
  bad_label = new (memory) BadLabel{};
  CONVOY_CUDNN_CHECK(cudnnCreate(&cudnn));
  CONVOY_CUDNN_CHECK(cudnnSetStream(cudnn, stream));
  CONVOY_CUBLAS_CHECK(cublasLtCreate(&cublas));
}

CudaState::~CudaState() {
  convolutions.reset();  // before the handles that they were made with
  linears.reset();
  if (cublas != nullptr) cublasLtDestroy(cublas);
  if (cudnn != nullptr) cudnnDestroy(cudnn);
  if (bad_label != nullptr) cudaFreeHost(bad_label);
  for (cudaEvent_t event : {copied, computed}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  for (cudaStream_t each : {copies, stream}) {
    if (each != nullptr) cudaStreamDestroy(each);
  }
}

bool CudaState::capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CONVOY_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

bool CudaState::passed(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // else the next check of a launch would find it
    return false;
  }
  if (status != cudaSuccess) {
    fail_gpu_call("what the host waited for", __FILE__, __LINE__, cudaGetErrorString(status));
  }
  return true;
}

void CudaState::wait_for(cudaEvent_t event) {
  constexpr double kBusy = 1e-3;  // seconds: short waits end at once, long ones leave the core to others
  const auto start = std::chrono::steady_clock::now();
  while (!passed(event)) {
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (waited < kBusy) {
      std::this_thread::yield();
      continue;
    }
    for (const auto& check : while_waiting) check(waited);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void CudaState::synchronize() {
  if (capturing()) fail("the host waited for the GPU while work was being recorded: wait before or after record()");
  CONVOY_CUDA_CHECK(cudaEventRecord(computed, stream));
  wait_for(computed);
  if (bad_label->seen != 0) {
    const BadLabel bad = *bad_label;
    bad_label->seen = 0;
    fail("label {} of sample {} of the batch is outside 0 to {} (the network has {} outputs)", bad.label, bad.sample,
         bad.classes - 1, bad.classes);
  }
}

}  // namespace convoy
