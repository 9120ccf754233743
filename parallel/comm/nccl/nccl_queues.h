// SPDX-License-Identifier: Apache-2.0
//
// The queues of one NCCL communicator as the rest of the program sees it: one for collectives, one for each direction
// of each neighbour (nccl_communicator.h says why), and the watch over all of them while the host waits for the GPU.
// Private to parallel/nccl_*.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/comm/nccl/nccl_queue.h"

namespace convoy {

class NcclQueues {
 public:
  /// Makes them; the ranks of `host` call this together. References outlive this.
  NcclQueues(Communicator& host, CudaBackend& backend, std::shared_ptr<const NcclIdentity> identity,
             const NcclOptions& options);
  ~NcclQueues();
  NcclQueues(const NcclQueues&) = delete;
  NcclQueues& operator=(const NcclQueues&) = delete;

  /// Null: not asked for, or alone.
  [[nodiscard]] NcclQueue* collectives() const { return collectives_.get(); }
  /// Null: no neighbour, or not asked for.
  [[nodiscard]] NcclQueue* to(int peer) const { return find(outgoing_, peer); }
  [[nodiscard]] NcclQueue* from(int peer) const { return find(incoming_, peer); }

  /// A new operation.
  [[nodiscard]] std::shared_ptr<NcclWork> flight(OperationName name);
  /// See NcclQueue::put.
  void put(NcclQueue& queue, const std::shared_ptr<NcclWork>& flight, const NcclQueue::Start& start);

 private:
  using ByPeer = std::map<int, std::unique_ptr<NcclQueue>>;
  // What CudaState calls while the host waits; its owner finds it again to take it away.
  struct WaitCheck {
    NcclQueues* owner;
    void operator()(double seconds) const { owner->check(seconds); }
  };

  static NcclQueue* find(const ByPeer& queues, int peer) {
    const auto found = queues.find(peer);
    return found == queues.end() ? nullptr : found->second.get();
  }
  void make_collectives();
  void make_messages();
  void make_direction(const std::string& id, int from, int to);
  void check(double seconds);
  [[nodiscard]] const NcclWork* oldest() const;
  void take_part(double seconds);
  void check_late(double seconds);
  [[nodiscard]] std::vector<NcclQueue*> all() const;

  Communicator& host_;
  CudaBackend& backend_;
  CudaState& state_;
  NcclOptions options_;
  std::shared_ptr<const NcclIdentity> identity_;
  std::shared_ptr<NcclEvents> events_ = std::make_shared<NcclEvents>();
  std::unique_ptr<NcclQueue> collectives_;
  ByPeer outgoing_, incoming_;
  std::uint64_t serial_ = 0;
  std::string recorded_;  // the label of what was last put into a graph; empty: nothing was
  double waited_ = 0;     // that check() was last called with
};

}  // namespace convoy
