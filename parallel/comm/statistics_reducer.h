// SPDX-License-Identifier: Apache-2.0
//
// Synchronised batch norm's sums over the replicas, on a communicator. Relies on every replica running the same layers
// in the same order; the sum blocks, because the layer needs the result.
#pragma once

#include <span>

#include "layers/statistics_reducer.h"
#include "parallel/comm/communicator.h"

namespace convoy {

class CommunicatorStatisticsReducer final : public StatisticsReducer {
 public:
  /// `replicas` must outlive this.
  explicit CommunicatorStatisticsReducer(Communicator& replicas) : replicas_(replicas) {}
  void sum(std::span<double> values) override {
    replicas_.all_reduce(values, ReduceOp::kSum, "synchronised batch-norm statistics");
  }

 private:
  Communicator& replicas_;
};

}  // namespace convoy
