// SPDX-License-Identifier: Apache-2.0
#include "layers/model.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "layers/base/error.h"
#include "layers/base/option_error.h"
#include "layers/base/profile_range.h"
#include "layers/base/random.h"

namespace convoy {

std::int64_t UnitInfo::parameters() const {
  std::int64_t count = 0;
  for (const TensorEntry& entry : manifest) count += entry.buffer ? 0 : entry.shape.size();
  return count;
}

UnitInfo build_unit(BuildContext& context, Unit& unit, const Shape& input) {
  const std::size_t first_parameter = context.store.parameters().size();
  const std::size_t first_norm = context.store.batch_norm_count();
  const double flops = context.flops;
  UnitInfo info{unit.name, input, {}, {}, 0, unit.frozen, unit.block};
  try {
    info.output = unit.layer->build(context, unit.path, input);
  } catch (const Error& error) {
    const std::string text = error.what(), prefix = unit.path + ": ";
    throw LayerError(unit.name, text.starts_with(prefix) ? text.substr(prefix.size()) : text);
  }
  info.flops = context.flops - flops;
  info.manifest = context.store.manifest(first_parameter, first_norm);
  if (unit.frozen) context.store.freeze(first_parameter, first_norm);
  return info;
}

int lowest_learning(const std::vector<UnitInfo>& units) {
  const auto learns = [](const UnitInfo& unit) { return !unit.frozen && unit.parameters() > 0; };
  const auto found = std::find_if(units.begin(), units.end(), learns);
  if (found != units.end()) return static_cast<int>(found - units.begin());
  if (std::any_of(units.begin(), units.end(), [](const UnitInfo& unit) { return unit.frozen; })) {
    fail_option("model.freeze", "names every unit that has parameters: there is nothing to train (leave out one)");
  }
  fail_usage("the model has no parameters: there is nothing to train");
}

std::vector<UnitInfo> describe_units(Backend& backend, std::vector<Unit> units, const Shape& input) {
  ParameterStore store(backend);  // without memory
  BuildContext context{backend, store};
  std::vector<UnitInfo> infos;
  infos.reserve(units.size());
  for (Unit& unit : units) infos.push_back(build_unit(context, unit, infos.empty() ? input : infos.back().output));
  return infos;
}

Model::Model(Backend& backend, std::vector<Unit> units, const Shape& input, std::uint64_t seed,
             StatisticsReducer* reducer, std::vector<UnitRange> chunks, HeadExchange* head)
    : backend_(backend), store_(backend), elsewhere_(backend), units_(std::move(units)), chunks_(std::move(chunks)) {
  if (units_.empty()) fail_usage("the model has no layers");
  if (chunks_.empty()) chunks_ = {{0, static_cast<int>(units_.size())}};
  std::vector<std::size_t> first_parameter;
  BuildContext context{backend_, store_, reducer}, others{backend_, elsewhere_};
  for (int i = 0; i < static_cast<int>(units_.size()); ++i) {
    const bool held =
        std::any_of(chunks_.begin(), chunks_.end(), [&](const UnitRange& c) { return c.first <= i && i < c.end; });
    Unit& unit = units_[static_cast<std::size_t>(i)];
    const Shape& before = infos_.empty() ? input : infos_.back().output;
    first_parameter.push_back(store_.parameters().size());
    context.unit_key = random_key(seed, std::to_string(i));
    first_layer_.push_back(context.layers);
    if (held && unit.block != 0) ++context.layers;
    if (i + 1 == static_cast<int>(units_.size())) context.head = head;
    infos_.push_back(build_unit(held ? context : others, unit, before));
  }
  if (context.head != nullptr || (head != nullptr && units_.back().frozen)) {
    fail_option("parallel.shard_head", "the last layer, of {}, {} (set it to false)", units_.back().name,
                context.head != nullptr ? "is not a linear one without an activation" : "is frozen");
  }
  layers_ = context.layers;
  first_layer_.push_back(layers_);
  needs_position_ = context.needs_position;
  lowest_ = lowest_learning(infos_);
  units_[static_cast<std::size_t>(lowest_)].layer->skip_input_gradient();
  find_blocks();
  for (const UnitRange& chunk : chunks_) {
    for (auto i = static_cast<std::size_t>(chunk.first) + 1; i < static_cast<std::size_t>(chunk.end); ++i) {
      // What a norm of another block needs for its reductions is not there yet.
      if (is_recomputed(i - 1) && block_begin_[i - 1] != block_begin_[i]) continue;
      units_[i].layer->set_input_norm(units_[i - 1].layer->output_norm());
    }
  }
  refuse_double_names();
  store_.finalize(seed);
  // Parameters lie in reverse order of declaration, so a unit's first one ends its range. A unit without
  // parameters that learn finishes what the unit after it finished.
  const auto& all = store_.parameters();
  final_elements_.assign(units_.size(), 0);
  std::size_t end = all.size();
  std::int64_t elements = 0;
  for (std::size_t i = units_.size(); i-- > 0; end = first_parameter[i]) {
    const std::size_t first = first_parameter[i];
    if (first < end && !all[first]->frozen) elements = ParameterStore::final_elements(*all[first]);
    final_elements_[i] = elements;
  }
}

void Model::find_blocks() {
  block_begin_.assign(units_.size(), -1);
  for (const UnitRange& chunk : chunks_) {
    for (int i = std::max(chunk.first, lowest_); i < chunk.end; ++i) {
      const auto unit = static_cast<std::size_t>(i);
      if (units_[unit].block == 0) continue;
      const bool continues = i > chunk.first && is_recomputed(unit - 1) &&
                             units_[unit - 1].block == units_[unit].block && !units_[unit].layer->is_composite() &&
                             !units_[unit - 1].layer->is_composite();
      block_begin_[unit] = continues ? block_begin_[unit - 1] : i;
    }
  }
}

void Model::recompute_up_to(std::size_t last, Cache& cache) {
  const int begin = block_begin_[last];
  if (begin < 0 || (last + 1 < units_.size() && block_begin_[last + 1] == begin)) return;
  Tensor y = std::move(block_input(cache, static_cast<std::size_t>(begin)));
  cache.pass = Cache::Pass::kSecond;
  for (auto i = static_cast<std::size_t>(begin); i <= last; ++i) {
    const ProfileRange range(units_[i].name.c_str());
    y = units_[i].layer->forward(y, cache, Mode::kTraining);
  }
  cache.pass = Cache::Pass::kOnly;
}

void Model::set_position(Cache& cache, std::int64_t update, std::int64_t first_sample) {
  const std::array<std::int64_t, 2> position{update, first_sample};
  if (cache.position) backend_.copy_from_host(position.data(), cache.position);
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

Shape Model::shape_before(std::size_t unit, const Shape& input) const {
  Shape shape = input;
  for (std::size_t i = 0; i < unit; ++i) shape = units_[i].layer->output_shape(shape);
  return shape;
}

Shape Model::chunk_input(int chunk, const Shape& input) const { return shape_before(first_unit(chunk), input); }
Shape Model::chunk_output(int chunk, const Shape& input) const { return shape_before(last_unit(chunk) + 1, input); }

std::size_t Model::lowest_unit(int chunk) const {
  return std::max(first_unit(chunk), static_cast<std::size_t>(lowest_));
}

std::int64_t Model::chunk_begin(int chunk) const {
  return chunk + 1 < static_cast<int>(chunks_.size()) ? chunk_end(chunk + 1) : 0;
}

Tensor Model::forward(const Tensor& x, Cache& cache, Mode mode, int chunk, const UnitOutput& unit_output) {
  Tensor y = x;
  for (std::size_t i = first_unit(chunk); i <= last_unit(chunk); ++i) {
    const ProfileRange range(units_[i].name.c_str());
    const bool again = mode == Mode::kTraining && is_recomputed(i);
    if (again && block_begin_[i] == static_cast<int>(i)) block_input(cache, i) = y;
    if (again) cache.pass = Cache::Pass::kFirst;
    // Below the lowest that learns nothing is kept for a backward that never comes.
    y = units_[i].layer->forward(y, cache, static_cast<int>(i) < lowest_ ? Mode::kEvaluation : mode);
    if (again) cache.release_activations(first_layer_[i] + 1, first_layer_[i + 1]);
    cache.pass = Cache::Pass::kOnly;
    if (unit_output) unit_output(i, y);
  }
  return y;
}

Tensor Model::backward(const Tensor& dy, Cache& cache, const UnitDone& unit_done, int chunk) {
  if (!learns_up_to(chunk)) return {};
  Tensor dx = dy;
  for (std::size_t i = last_unit(chunk) + 1; i-- > lowest_unit(chunk);) {
    recompute_up_to(i, cache);
    const ProfileRange range(units_[i].name.c_str());
    dx = units_[i].layer->backward(dx, cache);
    unit_done(final_elements_[i]);
  }
  backend_.finish_gradients();
  return learns_before(chunk) ? dx : Tensor();
}

Tensor Model::backward_input(const Tensor& dy, Cache& cache, int chunk, const Progress& progress) {
  if (!learns_up_to(chunk)) return {};
  Tensor dx = dy;
  for (std::size_t i = last_unit(chunk) + 1; i-- > lowest_unit(chunk);) {
    recompute_up_to(i, cache);
    const ProfileRange range(units_[i].name.c_str());
    dx = units_[i].layer->backward_input(dx, cache);
    if (progress) progress();
  }
  return learns_before(chunk) ? dx : Tensor();
}

void Model::backward_weight(Cache& cache, const UnitDone& unit_done, int chunk) {
  for (std::size_t i = last_unit(chunk) + 1; i-- > lowest_unit(chunk);) {
    const ProfileRange range(units_[i].name.c_str());
    units_[i].layer->backward_weight(cache);
    unit_done(final_elements_[i]);
  }
  backend_.finish_gradients();
}

}  // namespace convoy
