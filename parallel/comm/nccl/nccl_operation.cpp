// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/nccl/nccl_operation.h"

#include <utility>

#include "layers/backend/cuda/cuda_check.h"

namespace convoy {

NcclEvents::~NcclEvents() {
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaEvent_t NcclEvents::take() {
  if (!free_.empty()) {
    cudaEvent_t event = free_.back();
    free_.pop_back();
    return event;
  }
  free_.reserve(made_ + 1);  // so that give_back never allocates
  cudaEvent_t event = nullptr;
  CONVOY_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  ++made_;
  return event;
}

NcclWork::NcclWork(std::shared_ptr<const NcclIdentity> its_owner, std::shared_ptr<NcclEvents> its_events,
                   OperationName its_name, bool is_captured)
    : owner(std::move(its_owner)),
      events(std::move(its_events)),
      name(std::move(its_name)),
      done(events->take()),
      captured(is_captured) {
  owner->watched.note(RankState::kStarted, name);
}

bool NcclWork::over() {
  if (finished) return true;
  finished = CudaState::passed(done);
  if (finished) owner->watched.note(RankState::kFinished, name);
  return finished;
}

std::string NcclWork::label() const {
  return fmt::format("{} '{}' ({} on NCCL communicator '{}' of {} ranks)", name.kind, name.what, name.number_text(),
                     owner->watched.name(), owner->size);
}

NcclOperation::~NcclOperation() {
  try {
    wait();
  } catch (...) {  // the device is broken: whoever waits for it next says so
  }
}

void NcclOperation::let_go() noexcept {
  flight_.reset();
  first_.reset();
  second_.reset();
}

bool NcclOperation::test() {
  if (!flight_) return true;
  if (flight_->captured || state_->capturing() || !flight_->over()) return false;
  let_go();
  return true;
}

// The memory may be used again at once: all that uses it next comes behind this wait on the compute stream, or waits
// for that stream.
void NcclOperation::wait() {
  if (!flight_) return;
  const std::shared_ptr<NcclWork> flight = std::move(flight_);
  // After a capture that failed nothing of it will ever run, so there is nothing to wait for.
  const bool lost = flight->captured && !state_->capturing();
  if (!lost && !flight->finished) CONVOY_CUDA_CHECK(cudaStreamWaitEvent(state_->stream, flight->done, 0));
  let_go();
}

}  // namespace convoy
