// SPDX-License-Identifier: Apache-2.0
//
// What synchronised batch norm needs of the outside world: the sum of a few numbers over all replicas that
// work on the same microbatch index. Implemented over a communicator in parallel/comm/statistics_reducer.h, so
// that layers know no MPI.
#pragma once

#include <span>

namespace convoy {

class StatisticsReducer {
 public:
  virtual ~StatisticsReducer() = default;
  /// Replaces `values` by their sum over all replicas. Every replica calls it in the same order.
  virtual void sum(std::span<double> values) = 0;
};

}  // namespace convoy
