// SPDX-License-Identifier: Apache-2.0
#include "layers/optim/weight_average.h"

namespace convoy {

WeightAverage::WeightAverage(double decay, Backend& backend, ParameterStore& store)
    : share_(static_cast<float>(1 - decay)),
      backend_(backend),
      store_(store),
      weights_(backend.tensor(store.values().shape(), DType::kF32)),
      statistics_(backend.tensor(store.running().shape(), DType::kF32)) {
  restart();
}

void WeightAverage::update(std::int64_t update) {
  apply_weights(update, 0, weights_);
  apply_statistics(update, 0, statistics_);
}

void WeightAverage::apply_weights(std::int64_t update, std::int64_t begin, const Tensor& average) {
  apply(update, store_.values().view(begin, average.shape()), average);
}

void WeightAverage::apply_statistics(std::int64_t update, std::int64_t begin, const Tensor& average) {
  apply(update, store_.running().view(begin, average.shape()), average);
}

void WeightAverage::apply(std::int64_t update, const Tensor& present, const Tensor& average) {
  if (average.size() == 0) return;
  if (update == 0) {
    backend_.run(ops::Cast{present, average});
  } else {
    backend_.run(ops::Lerp{share_, present, average});
  }
}

void WeightAverage::exchange() {
  if (weights_.size() > 0) backend_.run(ops::Exchange{weights_, store_.values()});
  if (statistics_.size() > 0) backend_.run(ops::Exchange{statistics_, store_.running()});
  store_.refresh_compute();
}

}  // namespace convoy
