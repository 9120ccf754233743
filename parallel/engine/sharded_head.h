// SPDX-License-Identifier: Apache-2.0
//
// The last linear layer of a model and its softmax, divided over the replicas by classes: each replica has some classes
// for the samples of all (partial FC, An et al. 2021; the loss as in Megatron-LM, Shoeybi et al. 2019). Losses,
// gradients and top-k are those of the whole, to rounding. Invariant: replicas exchange blocks of equal length, that of
// the largest microbatch; rows behind a replica's own samples are zeros, and their labels -1.
#pragma once

#include <cstdint>

#include "layers/backend/backend.h"
#include "layers/head_exchange.h"
#include "layers/loss.h"
#include "parallel/comm/communicator.h"

namespace convoy {

class ShardedHead final : public HeadExchange {
 public:
  /// largest: samples of the largest microbatch. The others outlive this.
  ShardedHead(Communicator& replicas, Backend& backend, std::int64_t largest)
      : replicas_(replicas), backend_(backend), largest_(largest) {}

  [[nodiscard]] int shard() const override { return replicas_.rank(); }
  [[nodiscard]] int shards() const override { return replicas_.size(); }
  Tensor gather(const Tensor& x) override;
  Tensor reduce(const Tensor& partial, std::int64_t n) override;

  struct Targets {
    Tensor labels;             ///< int64 [largest], of this replica
    std::int64_t samples = 0;  ///< of it
    std::int64_t classes = 0;  ///< of all replicas
  };
  /// As Loss::apply() for cross-entropy, of this replica's columns of logits; totals are those of its own samples.
  void apply(const Loss& loss, const Tensor& logits, const Targets& targets, std::int64_t global_samples,
             const Tensor& dlogits, const Tensor& totals, const Tensor& loss_scale = ops::none());

 private:
  Communicator& replicas_;
  Backend& backend_;
  std::int64_t largest_;
};

}  // namespace convoy
