// SPDX-License-Identifier: Apache-2.0
#include "layers/model.h"

#include <algorithm>
#include <set>

#include "layers/base/error.h"
#include "layers/base/profile_range.h"

namespace convoy {

std::int64_t UnitInfo::parameters() const {
  std::int64_t count = 0;
  for (const TensorEntry& entry : manifest) count += entry.buffer ? 0 : entry.shape.size();
  return count;
}

namespace {

// Declares one unit in `store`, from cache entry `layers` on.
UnitInfo build_unit(Backend& backend, Unit& unit, const Shape& input, ParameterStore& store, StatisticsReducer* reducer,
                    int& layers) {
  const std::size_t first_parameter = store.parameters().size();
  const std::size_t first_norm = store.batch_norm_count();
  BuildContext context{backend, store, reducer, layers};
  UnitInfo info{unit.name, input, {}, {}, 0};
  info.output = unit.layer->build(context, unit.path, input);
  info.flops = context.flops;
  info.manifest = store.manifest(first_parameter, first_norm);
  layers = context.layers;
  return info;
}

// Declares a unit of others, in a store that never gets memory: that tells its names and shapes.
UnitInfo build_elsewhere(Backend& backend, Unit& unit, const Shape& input) {
  ParameterStore elsewhere(backend);
  int layers = 0;
  UnitInfo info = build_unit(backend, unit, input, elsewhere, nullptr, layers);
  unit.layer.reset();
  return info;
}

}  // namespace

std::vector<UnitInfo> describe_units(Backend& backend, std::vector<Unit> units, const Shape& input) {
  std::vector<UnitInfo> infos;
  infos.reserve(units.size());
  for (Unit& unit : units) {
    infos.push_back(build_elsewhere(backend, unit, infos.empty() ? input : infos.back().output));
  }
  return infos;
}

Model::Model(Backend& backend, std::vector<Unit> units, const Shape& input, std::uint64_t seed,
             StatisticsReducer* reducer, std::vector<UnitRange> chunks)
    : backend_(backend), store_(backend), units_(std::move(units)), chunks_(std::move(chunks)) {
  if (units_.empty()) fail_usage("the model has no layers");
  if (chunks_.empty()) chunks_ = {{0, static_cast<int>(units_.size())}};
  std::vector<std::size_t> first_parameter;
  for (int i = 0; i < static_cast<int>(units_.size()); ++i) {
    const bool held =
        std::any_of(chunks_.begin(), chunks_.end(), [&](const UnitRange& c) { return c.first <= i && i < c.end; });
    Unit& unit = units_[static_cast<std::size_t>(i)];
    const Shape& before = infos_.empty() ? input : infos_.back().output;
    first_parameter.push_back(store_.parameters().size());
    UnitInfo info =
        held ? build_unit(backend_, unit, before, store_, reducer, layers_) : build_elsewhere(backend_, unit, before);
    infos_.push_back(std::move(info));
  }
  if (units_.front().layer) units_.front().layer->skip_input_gradient();
  if (parameter_count() == 0) fail_usage("the model has no parameters: there is nothing to train");
  refuse_double_names();
  store_.finalize(seed);
  // Parameters lie in reverse order of declaration, so a unit's first one ends its stretch. A unit without
  // parameters finishes what the unit after it finished.
  const auto& all = store_.parameters();
  for (const std::size_t first : first_parameter) {
    final_elements_.push_back(first < all.size() ? ParameterStore::final_elements(*all[first]) : 0);
  }
}

void Model::refuse_double_names() const {
  std::set<std::string> names;
  for (const TensorEntry& entry : manifest()) {
    if (!names.insert(entry.name).second) {
      fail_usage("two layers declare the parameter {} (give them different names)", entry.name);
    }
  }
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const UnitInfo& info : infos_) count += info.parameters();
  return count;
}

std::vector<TensorEntry> Model::manifest() const {
  std::vector<TensorEntry> entries;
  for (const UnitInfo& info : infos_) entries.insert(entries.end(), info.manifest.begin(), info.manifest.end());
  return entries;
}

std::size_t Model::first_unit(int chunk) const {
  return static_cast<std::size_t>(chunks_[static_cast<std::size_t>(chunk)].first);
}

std::size_t Model::last_unit(int chunk) const {
  return static_cast<std::size_t>(chunks_[static_cast<std::size_t>(chunk)].end) - 1;
}

std::int64_t Model::chunk_begin(int chunk) const {
  return chunk + 1 < static_cast<int>(chunks_.size()) ? chunk_end(chunk + 1) : 0;
}

Tensor Model::forward(const Tensor& x, Cache& cache, Mode mode, int chunk, const Poke& poke) {
  Tensor y = x;
  for (std::size_t i = first_unit(chunk); i <= last_unit(chunk); ++i) {
    const ProfileRange range(units_[i].name.c_str());
    y = units_[i].layer->forward(y, cache, mode);
    if (poke) poke();
  }
  return y;
}

Tensor Model::backward(const Tensor& dy, Cache& cache, const UnitDone& unit_done, int chunk) {
  Tensor dx = dy;
  for (std::size_t i = last_unit(chunk) + 1; i-- > first_unit(chunk);) {
    const ProfileRange range(units_[i].name.c_str());
    dx = units_[i].layer->backward(dx, cache);
    unit_done(final_elements_[i]);
  }
  return dx;
}

Tensor Model::backward_input(const Tensor& dy, Cache& cache, int chunk, const Poke& poke) {
  Tensor dx = dy;
  for (std::size_t i = last_unit(chunk) + 1; i-- > first_unit(chunk);) {
    const ProfileRange range(units_[i].name.c_str());
    dx = units_[i].layer->backward_input(dx, cache);
    if (poke) poke();
  }
  return dx;
}

void Model::backward_weight(Cache& cache, const UnitDone& unit_done, int chunk) {
  for (std::size_t i = last_unit(chunk) + 1; i-- > first_unit(chunk);) {
    const ProfileRange range(units_[i].name.c_str());
    units_[i].layer->backward_weight(cache);
    unit_done(final_elements_[i]);
  }
}

}  // namespace convoy
