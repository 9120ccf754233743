// SPDX-License-Identifier: Apache-2.0
//
// All-gather of the parameters over the replicas, each of which has updated its shard (ZeRO-1, Rajbhandari et al.
// 2020). The shards travel in pieces of a bucket's size, those that the next forward reads first in front; the forward
// waits before each unit for what that unit needs. Invariant: every replica starts the same pieces in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layers/parameters.h"
#include "parallel/comm/communicator.h"

namespace convoy {

class ParameterGather {
 public:
  /// `replicas` and `store` outlive this. shard_bounds: see Optimizer; with one shard, or null replicas, there is
  /// nothing to do. piece_mb: MiB.
  ParameterGather(Communicator* replicas, ParameterStore& store, const std::vector<std::int64_t>& shard_bounds,
                  double piece_mb);
  [[nodiscard]] bool enabled() const { return !pieces_.empty(); }

  /// After the update of this replica's shard, when nothing reads the parameters any more. Collective.
  void start();
  /// Waits for the elements from `begin` on that learn, and refreshes the compute-type copies of the weights among
  /// them.
  void ready_from(std::int64_t begin);
  /// Waits for all.
  void finish() { ready_from(0); }
  /// Progresses the pieces that are under way. Cheap.
  void progress();
  /// Seconds spent in waits since the last call.
  double take_waited();

 private:
  struct Piece {
    std::int64_t begin, end;
    int owner;
    Tensor values;
    std::string name;
    Pending pending;   // empty where it is not under way
    double start = 0;  // when that began, for the trace
  };
  void complete();

  Communicator* replicas_;
  ParameterStore& store_;
  std::vector<Piece> pieces_;  // from the end of the buffer to its begin
  std::size_t next_ = 0;       // pieces before this one are complete
  double waited_ = 0;
};

}  // namespace convoy
