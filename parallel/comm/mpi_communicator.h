// SPDX-License-Identifier: Apache-2.0
//
// Communicator for host memory: non-blocking operations on its own MPI communicator, polled until their timeout.
// Private to parallel/. Invariant: members that call the same collectives in the same order number them alike, so that
// reports of different ranks can be compared. A communicator of one rank checks its arguments and starts no MPI
// operation.
#pragma once

#include <mpi.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi_operation.h"
#include "parallel/comm/shared_sum.h"

namespace convoy {

class MpiCommunicator final : public Communicator {
 public:
  /// Takes ownership of `owned` and frees it. `timeout` in seconds, for each wait. Buffers of more than `max_count`
  /// elements are split into several MPI messages.
  MpiCommunicator(MPI_Comm owned, const std::string& name, double timeout, std::int64_t max_count = INT_MAX);
  ~MpiCommunicator() override;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  [[nodiscard]] int rank() const override { return identity_->rank; }
  [[nodiscard]] int size() const override { return identity_->size; }

  Tensor reduction_memory(std::int64_t elements) override;
  Pending all_reduce(const Tensor& buffer, ReduceOp op, const std::string& what) override;
  Pending broadcast(const Tensor& buffer, int root, const std::string& what) override;
  Pending reduce(const Tensor& buffer, ReduceOp op, int root, const std::string& what) override;
  Pending scatter(const Tensor& whole, const Tensor& part, int root, const std::string& what) override;
  Pending gather(const Tensor& part, const Tensor& whole, int root, const std::string& what) override;
  Pending all_gather(const Tensor& part, const Tensor& whole, const std::string& what) override;
  Pending reduce_scatter(const Tensor& whole, const Tensor& part, const std::string& what) override;
  Pending send(const Tensor& buffer, int peer, int tag, const std::string& what) override;
  Pending receive(const Tensor& buffer, int peer, int tag, const std::string& what) override;

  void all_reduce(std::span<double> values, ReduceOp op, const std::string& what) override;
  std::string broadcast(std::string text, int root, const std::string& what) override;
  std::vector<std::string> all_gather(const std::string& text, const std::string& what) override;
  void send_bytes(std::span<const std::byte> bytes, int peer, const std::string& what) override;
  std::vector<std::byte> receive_bytes(int peer, const std::string& what) override;
  void barrier(const std::string& what) override;

 private:
  using Operation = std::unique_ptr<MpiOperation>;
  Operation start_collective(const char* kind, const std::string& what);
  Operation start_message(const char* kind, int peer, int tag, const std::string& what);
  template <class Start>
  void in_pieces(const Tensor& buffer, const Start& start) const;
  int part_count(const Tensor& whole, const Tensor& part, int root, const MpiOperation& operation) const;
  void check_root(int root, const MpiOperation& operation) const;
  /// Where the buffer is in shared memory: its sum, on all ranks, is what the operation waits for.
  bool start_shared_sum(const Tensor& buffer, MpiOperation& operation);

  MPI_Comm comm_;
  std::shared_ptr<CommunicatorIdentity> identity_;
  std::int64_t max_count_;
  int max_tag_ = 32767;
  std::uint64_t collectives_ = 0;
  std::uint64_t messages_ = 0;
  std::unique_ptr<SharedSum> shared_sum_;
};

}  // namespace convoy
