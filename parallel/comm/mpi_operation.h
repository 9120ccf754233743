// SPDX-License-Identifier: Apache-2.0
//
// One asynchronous MPI operation: its requests, the owners of its memory, its label and its timeout. Private to
// parallel/. Invariant: memory that MPI may still write to is never freed. An operation that cannot complete any more
// (it timed out, or the rank is about to abort) is abandoned: its requests and memory are leaked on purpose, and World
// then ends without MPI_Finalize.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/watchdog/own_status.h"

namespace convoy {

/// Shared by the operations of a communicator: mainly text for reports.
struct CommunicatorIdentity {
  /// Collective, so that it has the same id on all members.
  CommunicatorIdentity(MPI_Comm comm, const std::string& name, double its_timeout);
  WatchedCommunicator watched;
  int rank = 0;
  int size = 1;
  double timeout = 0;                  ///< seconds that wait() allows
  std::atomic<bool> abandoned{false};  ///< set with the first abandoned operation: later ones do not wait
};

class MpiOperation final : public PendingOperation {
 public:
  MpiOperation(std::shared_ptr<CommunicatorIdentity> owner, OperationName name);
  /// Waits until the timeout (a fraction of a second during stack unwinding), then abandons the operation.
  ~MpiOperation() override;
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  bool test() override;
  /// May be called again after a timeout: the operation is still in progress.
  void wait() override;

  /// Storage for one more request; the pointer is valid until the next call. An operation without requests is complete.
  MPI_Request* add_request();
  /// The next request's message must have exactly `bytes` bytes.
  void expect_bytes(std::int64_t bytes);
  /// A further condition of completion, evaluated by test() until it is true.
  void until(std::function<bool()> done);
  /// Keeps a reference to the tensor until the operation is complete.
  void keep(const Tensor& tensor);
  /// Allocates memory with the lifetime of the operation.
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

/// Number of operations that this process has abandoned.
[[nodiscard]] int abandoned_operations() noexcept;

}  // namespace convoy
