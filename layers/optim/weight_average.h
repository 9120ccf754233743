// SPDX-License-Identifier: Apache-2.0
//
// The exponential moving average of a model's weights and of its running means and variances
// (torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay) and use_buffers, as torchvision trains). What
// is frozen is averaged, too: a later start of the run may freeze others. Invariant: it depends on the model alone, so
// it is equal on all replicas.
#pragma once

#include <cstdint>

#include "layers/parameters.h"

namespace convoy {

class WeightAverage {
 public:
  /// The model as it is. `store` outlives this.
  WeightAverage(double decay, Backend& backend, ParameterStore& store);

  /// Once a step, after the optimizer and the update of the running statistics. update: how many updates came before;
  /// the first one copies the model.
  void update(std::int64_t update);
  /// The same for a part: the elements from `begin` on, of the weights or of the statistics, which `average` holds.
  void apply_weights(std::int64_t update, std::int64_t begin, const Tensor& average);
  void apply_statistics(std::int64_t update, std::int64_t begin, const Tensor& average);
  /// Takes the model as it is.
  void restart() { update(0); }
  /// Exchanges the model and the average, in the compute type as well: the model then is the average, until the next
  /// call.
  void exchange();
  /// float32, as long as ParameterStore::values() and ParameterStore::running().
  [[nodiscard]] const Tensor& weights() const { return weights_; }
  [[nodiscard]] const Tensor& statistics() const { return statistics_; }

 private:
  void apply(std::int64_t update, const Tensor& present, const Tensor& average);

  float share_;  // of the present model: 1 - decay
  Backend& backend_;
  ParameterStore& store_;
  Tensor weights_, statistics_;
};

}  // namespace convoy
