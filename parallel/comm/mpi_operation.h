// SPDX-License-Identifier: Apache-2.0
//
// One asynchronous MPI operation: its requests, what keeps its memory alive, its label and its deadline.
// Private to parallel/. Invariant: memory that MPI may still write to is never given back. An operation that
// cannot be completed any more (its deadline has passed, or the rank is on its way to abort) is abandoned:
// its requests and memory are kept for ever, and World then ends without MPI_Finalize.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/watchdog/own_status.h"

namespace convoy {

/// What the operations of one communicator share: mostly text for their reports.
struct CommunicatorIdentity {
  /// Its members make it together, so that it has the same id on all of them.
  CommunicatorIdentity(MPI_Comm comm, const std::string& name, double its_timeout);
  WatchedCommunicator watched;
  int rank = 0;
  int size = 1;
  double timeout = 0;                  ///< seconds that wait() allows
  std::atomic<bool> abandoned{false};  ///< set once an operation was: the next ones do not wait in vain
};

class MpiOperation final : public PendingOperation {
 public:
  MpiOperation(std::shared_ptr<CommunicatorIdentity> owner, OperationName name);
  /// Waits up to the deadline (a fraction of a second while an exception passes), then abandons.
  ~MpiOperation() override;
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  bool test() override;
  /// May be called again after it threw for lateness: the operation is still under way.
  void wait() override;

  /// Space for one more request; use it at once. Without requests an operation is complete.
  MPI_Request* add_request();
  /// The next request's message must have exactly `bytes` bytes.
  void expect_bytes(std::int64_t bytes);
  /// What else must be true for the operation to be complete; asked by test() until it is.
  void until(std::function<bool()> done);
  /// Keeps the tensor's memory until the operation is complete.
  void keep(const Tensor& tensor);
  /// Memory that lives as long as the operation.
  std::byte* allocate(std::size_t bytes);
  /// "all_reduce 'gradient bucket 3' (collective 1204 on communicator 'replicas' of 4 ranks)"
  [[nodiscard]] std::string label() const;

 private:
  struct State;
  [[nodiscard]] bool complete() const;
  bool poll(double seconds);

  std::shared_ptr<CommunicatorIdentity> owner_;
  OperationName name_;
  std::unique_ptr<State> state_;
  int exceptions_at_start_;
  bool late_ = false;
};

/// Operations of this process that were abandoned.
[[nodiscard]] int abandoned_operations() noexcept;

}  // namespace convoy
