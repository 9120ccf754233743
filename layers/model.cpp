// SPDX-License-Identifier: Apache-2.0
#include "layers/model.h"

#include "layers/base/error.h"

namespace convoy {

Model::Model(Backend& backend, std::vector<Unit> units, const Shape& input, std::uint64_t seed,
             StatisticsReducer* reducer)
    : backend_(backend), store_(backend), units_(std::move(units)), input_(input), output_(input) {
  if (units_.empty()) fail_usage("the model has no layers");
  BuildContext context{backend_, store_, reducer};
  std::vector<std::size_t> first_parameter;
  for (auto& unit : units_) {
    first_parameter.push_back(store_.parameters().size());
    output_ = unit.layer->build(context, unit.path, output_);
  }
  units_.front().layer->skip_input_gradient();
  layers_ = context.layers;
  if (store_.parameters().empty()) fail_usage("the model has no parameters: there is nothing to train");
  store_.finalize(seed);
  // Parameters lie in reverse order of declaration, so a unit's first one ends its stretch. A unit without
  // parameters finishes what the unit after it finished.
  const auto& all = store_.parameters();
  for (const std::size_t first : first_parameter) {
    final_elements_.push_back(first < all.size() ? ParameterStore::final_elements(*all[first]) : 0);
  }
}

Tensor Model::forward(const Tensor& x, Cache& cache, Mode mode) {
  Tensor y = x;
  for (auto& unit : units_) y = unit.layer->forward(y, cache, mode);
  return y;
}

void Model::backward(const Tensor& dy, Cache& cache, const std::function<void(std::int64_t)>& unit_done) {
  Tensor dx = dy;
  for (std::size_t i = units_.size(); i-- > 0;) {
    dx = units_[i].layer->backward(dx, cache);
    unit_done(final_elements_[i]);
  }
}

}  // namespace convoy
