// SPDX-License-Identifier: Apache-2.0
//
// The exponential moving average of a model's weights (torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn(decay)). Buffers of batch norms are the model's own. Frozen parameters are averaged, too: a
// later start of the run may freeze others. Invariant: it depends on the weights alone, so it is equal on all replicas.
#pragma once

#include <cstdint>

#include "layers/parameters.h"

namespace convoy {

class WeightAverage {
 public:
  /// The weights as they are. `store` outlives this.
  WeightAverage(double decay, Backend& backend, ParameterStore& store);

  /// Once a step, after the optimizer. update: how many updates came before; the first one copies the weights.
  void update(std::int64_t update) { apply(update, 0, average_); }
  /// The same for a part: the elements from `begin` on, which `average` holds.
  void apply(std::int64_t update, std::int64_t begin, const Tensor& average);
  /// Takes the weights as they are.
  void restart();
  /// Exchanges the weights and the average, in the compute type as well: the model then is the average, until the next
  /// call.
  void exchange();
  /// float32, as long as ParameterStore::values().
  [[nodiscard]] const Tensor& tensor() const { return average_; }

 private:
  float weight_;  // of the new weights: 1 - decay
  Backend& backend_;
  ParameterStore& store_;
  Tensor average_;
};

}  // namespace convoy
