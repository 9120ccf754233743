// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/cuda/uploads.h"

#include <algorithm>
#include <cstring>

#include "layers/backend/cuda/cuda_check.h"

namespace convoy {

Uploads::Uploads(CudaState& state, Backend& backend)
    : state_(state), pinned_(state, kPieces), buffers_(backend.tensor({kPieces, kPieceBytes}, DType::kU8)) {
  for (cudaEvent_t& event : read_) {
    CONVOY_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    // Pooled memory may come from a tensor that compute still reads.
    CONVOY_CUDA_CHECK(cudaEventRecord(event, state_.stream));
  }
}

Uploads::~Uploads() {
  for (cudaEvent_t event : read_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

void Uploads::copy(const std::byte* source, std::size_t bytes, std::byte* destination) {
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    const std::size_t count = std::min(kPieceBytes, bytes - at);
    void* pinned = pinned_.acquire(kPieceBytes);  // whole, so that no piece ever grows
    std::memcpy(pinned, source + at, count);
    std::byte* buffer = buffers_.data<std::byte>() + next_ * kPieceBytes;
    const cudaEvent_t last_read = read_[next_];
    next_ = (next_ + 1) % kPieces;
    CONVOY_CUDA_CHECK(cudaStreamWaitEvent(state_.copies, last_read, 0));
    CONVOY_CUDA_CHECK(cudaMemcpyAsync(buffer, pinned, count, cudaMemcpyHostToDevice, state_.copies));
    pinned_.in_use_by(state_.copies);
    CONVOY_CUDA_CHECK(cudaEventRecord(state_.copied, state_.copies));
    CONVOY_CUDA_CHECK(cudaStreamWaitEvent(state_.stream, state_.copied, 0));
    CONVOY_CUDA_CHECK(cudaMemcpyAsync(destination + at, buffer, count, cudaMemcpyDeviceToDevice, state_.stream));
    CONVOY_CUDA_CHECK(cudaEventRecord(last_read, state_.stream));
  }
}

}  // namespace convoy
