// SPDX-License-Identifier: Apache-2.0
//
// One NCCL communicator and the stream that its operations run on, one after the other. Each waits for what the compute
// stream held when it was put there. NCCL is called without blocking: every call is polled until it is under way or the
// timeout is over. Private to parallel/nccl_*. Invariant: no two NCCL calls of one communicator are under way at once.
#pragma once

#include <nccl.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/nccl/nccl_operation.h"

namespace convoy {

class NcclQueue {
 public:
  struct Settings {
    int rank = 0, size = 1;  ///< in the NCCL communicator
    bool high_priority = false;
    int most_blocks = 0;  ///< thread blocks that its kernels take at most; 0: as NCCL likes
  };
  /// Its members call this together. id: of new_nccl_id() on one of them.
  NcclQueue(CudaState& state, std::shared_ptr<const NcclIdentity> identity, std::shared_ptr<NcclEvents> events,
            const std::string& id, const Settings& settings);
  /// Ends in order what is under way; while an exception passes, aborts.
  ~NcclQueue();
  NcclQueue(const NcclQueue&) = delete;
  NcclQueue& operator=(const NcclQueue&) = delete;

  using Start = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  /// Puts what `start` calls behind the compute stream's present work. `flight` is new and says what it is.
  void put(const std::shared_ptr<NcclWork>& flight, const Start& start);

  /// Throws what NCCL has found wrong since.
  void check();
  /// The first operation that the GPU has not come past; null when there is none. Not during a capture.
  [[nodiscard]] const NcclWork* oldest();
  /// Ends its kernels, here and soon on the other members. Takes a few seconds at most.
  void abort() noexcept;

 private:
  struct StreamDeleter {
    void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
  };

  /// The result of a call that may be in progress; ncclInProgress when that takes longer than `seconds`.
  [[nodiscard]] ncclResult_t settle(ncclResult_t result, const OperationName& name, double seconds) const;
  [[noreturn]] void give_up(const OperationName& name, const std::string& label, ncclResult_t result);

  CudaState& state_;
  std::shared_ptr<const NcclIdentity> identity_;
  std::shared_ptr<NcclEvents> events_;
  std::unique_ptr<CUstream_st, StreamDeleter> stream_;
  ncclComm_t comm_ = nullptr;
  cudaEvent_t ready_ = nullptr;                      // the compute stream, where an operation was put
  std::deque<std::shared_ptr<NcclWork>> in_flight_;  // oldest first; captured ones are not among them
  bool aborted_ = false;
  int exceptions_at_start_;
};

}  // namespace convoy
