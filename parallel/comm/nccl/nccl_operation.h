// SPDX-License-Identifier: Apache-2.0
//
// One operation on an NCCL stream: the event behind it, its names, and the handle that keeps its memory alive. Private
// to parallel/nccl_*.
//
// Events and graphs: an event recorded on a stream under capture is a node of that graph. Streams of the same capture
// may wait for it. Nothing may query it, and no host thread may wait for it once the capture is over; the next record
// makes it an ordinary event again. So each use of an event begins with a record. An operation stores whether it was
// captured; captured ones are waited for within their capture only and never queried.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/backend/cuda/cuda_state.h"
#include "parallel/comm/communicator.h"
#include "parallel/watchdog/own_status.h"

namespace convoy {

/// Events for reuse, so that none is made in a steady step.
class NcclEvents {
 public:
  NcclEvents() = default;
  ~NcclEvents();
  NcclEvents(const NcclEvents&) = delete;
  NcclEvents& operator=(const NcclEvents&) = delete;
  [[nodiscard]] cudaEvent_t take();
  void give_back(cudaEvent_t event) noexcept { free_.push_back(event); }

 private:
  std::vector<cudaEvent_t> free_;
  std::size_t made_ = 0;
};

/// What the operations of one communicator share: text for reports.
struct NcclIdentity {
  NcclIdentity(const std::string& name, std::vector<int> members) : watched(name, std::move(members)) {}
  WatchedCommunicator watched;
  int rank = 0, size = 1;
  std::string host;
  double timeout = 0;
};

/// An operation on its way. Owned by its handle and by the queue that may have to name it.
struct NcclWork {
  NcclWork(std::shared_ptr<const NcclIdentity> owner, std::shared_ptr<NcclEvents> events, OperationName name,
           bool captured);
  ~NcclWork() { events->give_back(done); }
  NcclWork(const NcclWork&) = delete;
  NcclWork& operator=(const NcclWork&) = delete;

  /// Whether the GPU has come past it; neither for a captured one nor during a capture.
  [[nodiscard]] bool over();
  /// "all_reduce 'gradient bucket 3' (collective 1204 on NCCL communicator 'replicas' of 4 ranks)"
  [[nodiscard]] std::string label() const;

  std::shared_ptr<const NcclIdentity> owner;
  std::shared_ptr<NcclEvents> events;
  OperationName name;
  cudaEvent_t done;  ///< recorded behind the operation
  bool captured;     ///< part of a graph
  bool finished = false;
  std::uint64_t serial = 0;  ///< in the order of the calls
};

class NcclOperation final : public PendingOperation {
 public:
  /// Complete.
  NcclOperation() = default;
  NcclOperation(CudaState& state, std::shared_ptr<NcclWork> flight, Tensor first, Tensor second)
      : state_(&state), flight_(std::move(flight)), first_(std::move(first)), second_(std::move(second)) {}
  ~NcclOperation() override;
  NcclOperation(const NcclOperation&) = delete;
  NcclOperation& operator=(const NcclOperation&) = delete;

  /// False during a capture.
  bool test() override;
  /// Makes the compute stream wait, not the host.
  void wait() override;

 private:
  void let_go() noexcept;

  CudaState* state_ = nullptr;
  std::shared_ptr<NcclWork> flight_;  // empty: complete, or the compute stream waits for it
  Tensor first_, second_;             // what it reads and writes
};

}  // namespace convoy
