// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/sharded_head.h"

namespace convoy {

Tensor ShardedHead::gather(const Tensor& x) {
  const std::int64_t features = x.shape()[1];
  Tensor block = x;
  if (x.shape()[0] < largest_) {
    block = backend_.tensor({largest_, features}, x.dtype());
    backend_.zero(block);
    backend_.run(ops::Cast{x, block.view(0, x.shape())});
  }
  Tensor all = backend_.tensor({shards() * largest_, features}, x.dtype());
  replicas_.all_gather(block, all, "inputs of the head")->wait();
  return all;
}

Tensor ShardedHead::reduce(const Tensor& partial, std::int64_t n) {
  const std::int64_t features = partial.shape()[1];
  Tensor sums = partial;
  if (partial.dtype() != DType::kF32) {
    sums = backend_.tensor(partial.shape(), DType::kF32);
    backend_.run(ops::Cast{partial, sums});
  }
  const Tensor block = backend_.tensor({largest_, features}, DType::kF32);
  replicas_.reduce_scatter(sums, block, "gradients of the head's inputs")->wait();
  const Tensor own = block.view(0, {n, features});
  if (partial.dtype() == DType::kF32) return own;
  Tensor rounded = backend_.tensor(own.shape(), partial.dtype());
  backend_.run(ops::Cast{own, rounded});
  return rounded;
}

void ShardedHead::apply(const Loss& loss, const Tensor& logits, const Targets& targets, std::int64_t global_samples,
                        const Tensor& dlogits, const Tensor& totals, const Tensor& loss_scale) {
  const std::int64_t rows = shards() * largest_;
  const ClassShard shard = class_shard(targets.classes, this->shard(), shards());
  const Tensor labels = backend_.tensor({rows}, DType::kI64);
  replicas_.all_gather(targets.labels, labels, "labels of the head")->wait();
  const Tensor maxima = backend_.tensor({2, rows}, DType::kF64), sums = backend_.tensor({3, rows}, DType::kF64);
  backend_.run(ops::ShardMaxima{logits, labels, shard, maxima});
  replicas_.all_reduce(maxima, ReduceOp::kMax, "largest outputs of the head")->wait();
  backend_.run(ops::ShardSums{logits, labels, maxima, shard, sums});
  replicas_.all_reduce(sums, ReduceOp::kSum, "sums of the head's outputs")->wait();
  const float smoothing = dlogits ? static_cast<float>(loss.label_smoothing) : 0.0F;
  backend_.run(ops::ShardCrossEntropy{dlogits ? logits : ops::none(), labels, maxima, sums, loss_scale, shard,
                                      this->shard() * largest_, targets.samples, smoothing,
                                      1.0F / static_cast<float>(global_samples), dlogits, totals});
}

}  // namespace convoy
