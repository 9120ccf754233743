// SPDX-License-Identifier: Apache-2.0
#include "layers/optim/weight_average.h"

namespace convoy {

WeightAverage::WeightAverage(double decay, Backend& backend, ParameterStore& store)
    : weight_(static_cast<float>(1 - decay)),
      backend_(backend),
      store_(store),
      average_(backend.tensor(store.values().shape(), DType::kF32)) {
  restart();
}

void WeightAverage::apply(std::int64_t update, std::int64_t begin, const Tensor& average) {
  if (average.size() == 0) return;
  const Tensor weights = store_.values().view(begin, average.shape());
  if (update == 0) {
    backend_.run(ops::Cast{weights, average});
  } else {
    backend_.run(ops::Lerp{weight_, weights, average});
  }
}

void WeightAverage::restart() { apply(0, 0, average_); }

void WeightAverage::exchange() {
  if (average_.size() == 0) return;
  backend_.run(ops::Exchange{average_, store_.values()});
  store_.refresh_compute();
}

}  // namespace convoy
