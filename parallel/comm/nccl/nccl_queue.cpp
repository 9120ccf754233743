// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/nccl/nccl_queue.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "layers/base/stopwatch.h"
#include "layers/cpu/contention_monitor.h"
#include "parallel/base/wait_time.h"
#include "parallel/comm/nccl/nccl_check.h"
#include "parallel/watchdog/watchdog.h"

namespace convoy {

namespace {

constexpr double kYieldSeconds = 1.0;  // of yielding before sleeping between polls
constexpr double kServeSeconds = 0.1;  // of waiting before it answers questions of other ranks
constexpr double kEndSeconds = 30;     // for ending in order, after which it is aborted
constexpr double kAbortSeconds = 5;    // for aborting, after which it continues by itself

void pause(double waited) {
  if (waited > kYieldSeconds || cpus_contended()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  } else {
    sched_yield();  // NCCL works in a thread of its own meanwhile
  }
}

cudaStream_t make_stream(bool high_priority) {
  int least = 0, greatest = 0;
  CONVOY_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  CONVOY_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, high_priority ? greatest : least));
  return stream;
}

ncclUniqueId unpacked(const std::string& text) {
  ncclUniqueId id{};
  if (text.size() != sizeof id.internal) fail("an NCCL id of {} bytes, not {}", text.size(), sizeof id.internal);
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  return id;
}

}  // namespace

NcclQueue::NcclQueue(CudaState& state, std::shared_ptr<const NcclIdentity> identity, std::shared_ptr<NcclEvents> events,
                     const std::string& id, const Settings& settings)
    : state_(state),
      identity_(std::move(identity)),
      events_(std::move(events)),
      stream_(make_stream(settings.high_priority)),
      exceptions_at_start_(std::uncaught_exceptions()) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (settings.most_blocks > 0) config.maxCTAs = settings.most_blocks;
  const OperationName start{"start", 0, "NCCL"};
  const ncclResult_t result = settle(
      ncclCommInitRankConfig(&comm_, settings.size, unpacked(id), settings.rank, &config), start, identity_->timeout);
  if (result != ncclSuccess) {
    give_up(start,
            fmt::format("start of NCCL communicator '{}' of {} ranks", identity_->watched.name(), identity_->size),
            result);
  }
  ready_ = events_->take();
}

NcclQueue::~NcclQueue() {
  if (ready_ != nullptr) events_->give_back(ready_);
  if (aborted_) return;
  const OperationName end{"end", 0, "NCCL"};
  const bool in_order = std::uncaught_exceptions() <= exceptions_at_start_ &&
                        settle(ncclCommFinalize(comm_), end, std::min(kEndSeconds, identity_->timeout)) == ncclSuccess;
  if (in_order) {
    ncclCommDestroy(comm_);
  } else {
    abort();
  }
}

ncclResult_t NcclQueue::settle(ncclResult_t result, const OperationName& name, double seconds) const {
  if (result != ncclInProgress) return result;
  identity_->watched.note(RankState::kWaiting, name);
  Stopwatch watch;
  double waited = 0;
  double spent = 0;
  while (result == ncclInProgress && waited <= seconds) {
    pause(waited);
    // A long gap means that this process was stopped (a suspended job): the other ranks then were too.
    const double lap = watch.lap();
    spent += lap;
    waited += std::min(1.0, lap);
    if (waited > kServeSeconds && Watchdog::current() != nullptr) Watchdog::current()->serve();
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  add_communication_wait(spent);
  return result;
}

void NcclQueue::give_up(const OperationName& name, const std::string& label, ncclResult_t result) {
  const std::string words = describe_nccl_error(result);
  if (result == ncclInProgress) {
    try {
      fail_late(identity_->watched.late(name, fmt::format("{}, {},", label, current_gpu()), identity_->timeout));
    } catch (...) {
      abort();  // after the inquiry: the others' kernels end with ours
      throw;
    }
  }
  abort();
  const std::string where = fmt::format("rank {} of it, on {}, {}", identity_->rank, identity_->host, current_gpu());
  fail("{} failed on {}: {} (NCCL_DEBUG=WARN says more)", label, where, words);
}

void NcclQueue::put(const std::shared_ptr<NcclWork>& flight, const Start& start) {
  if (aborted_) fail("{}: the communicator was ended after an error", flight->label());
  if (!flight->captured) static_cast<void>(oldest());  // lets go of events for reuse
  CONVOY_CUDA_CHECK(cudaEventRecord(ready_, state_.stream));
  CONVOY_CUDA_CHECK(cudaStreamWaitEvent(stream_.get(), ready_, 0));
  const ncclResult_t result = settle(start(comm_, stream_.get()), flight->name, identity_->timeout);
  if (result != ncclSuccess) give_up(flight->name, flight->label(), result);
  CONVOY_CUDA_CHECK(cudaEventRecord(flight->done, stream_.get()));
  if (!flight->captured) in_flight_.push_back(flight);
}

void NcclQueue::check() {
  if (aborted_) return;
  ncclResult_t found = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &found);
  const ncclResult_t result = asked == ncclSuccess ? found : asked;
  if (result == ncclSuccess || result == ncclInProgress) return;
  const NcclWork* flight = oldest();
  give_up(flight != nullptr ? flight->name : OperationName{},
          flight != nullptr ? flight->label() : fmt::format("NCCL communicator '{}'", identity_->watched.name()),
          result);
}

const NcclWork* NcclQueue::oldest() {
  while (!in_flight_.empty() && in_flight_.front()->over()) in_flight_.pop_front();
  return in_flight_.empty() ? nullptr : in_flight_.front().get();
}

// In a thread of its own, because NCCL may wait there for graphs that still hold its kernels, or for a partner that is
// gone; the kernels end as soon as it begins.
void NcclQueue::abort() noexcept {
  if (aborted_) return;
  aborted_ = true;
  if (comm_ == nullptr) return;
  try {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    std::thread([comm = comm_, done] {
      ncclCommAbort(comm);
      *done = true;
    }).detach();
    Stopwatch watch;
    for (double waited = 0; !*done && waited < kAbortSeconds; waited += watch.lap()) pause(waited);
  } catch (...) {  // no thread, no memory: the job's end ends it
  }
}

}  // namespace convoy
