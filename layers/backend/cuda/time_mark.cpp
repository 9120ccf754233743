// SPDX-License-Identifier: Apache-2.0
//
// Marks of the CUDA backend: events on the compute stream.
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/cuda_check.h"
#include "layers/backend/cuda/cuda_state.h"

namespace convoy {

namespace {

class EventMark final : public TimeMark {
 public:
  explicit EventMark(cudaStream_t stream) {
    CONVOY_CUDA_CHECK(cudaEventCreate(&event_));
    CONVOY_CUDA_CHECK(cudaEventRecord(event_, stream));
  }
  ~EventMark() override { cudaEventDestroy(event_); }
  EventMark(const EventMark&) = delete;
  EventMark& operator=(const EventMark&) = delete;

  [[nodiscard]] double seconds_since(const TimeMark& earlier) const override {
    float milliseconds = 0;
    CONVOY_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<const EventMark&>(earlier).event_, event_));
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::unique_ptr<TimeMark> CudaBackend::mark() {
  require_not_recording("mark");
  return std::make_unique<EventMark>(state_->stream);
}

}  // namespace convoy
