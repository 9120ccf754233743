// SPDX-License-Identifier: Apache-2.0
//
// What a last linear layer whose outputs are divided over replicas needs of the outside world: the inputs of all
// replicas, and the sum of the gradients of its input. Implemented over a communicator in
// parallel/engine/sharded_head.h, so that layers know no MPI.
#pragma once

#include <cstdint>

#include "layers/base/tensor.h"

namespace convoy {

class HeadExchange {
 public:
  virtual ~HeadExchange() = default;
  /// Which of so many shards this replica has.
  [[nodiscard]] virtual int shard() const = 0;
  [[nodiscard]] virtual int shards() const = 0;
  /// Of the inputs x [n, F] of this replica the rows of all replicas, in their order: each has as many rows as the
  /// largest microbatch, zeros behind its own. Collective, as reduce().
  [[nodiscard]] virtual Tensor gather(const Tensor& x) = 0;
  /// Of gradients of all rows, this replica's first n rows of the sum over replicas: [n, F].
  [[nodiscard]] virtual Tensor reduce(const Tensor& partial, std::int64_t n) = 0;
};

}  // namespace convoy
