// SPDX-License-Identifier: Apache-2.0
#include "layers/parameters.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "layers/base/error.h"
#include "layers/base/random.h"
#include "layers/base/rehearsal.h"

namespace convoy {

namespace {

constexpr float kMomentum = 0.1F;  // of running statistics, torch.nn.BatchNorm2d's default

// One more tensor in `result`, in the memory that `reuse` has at this place, if it has the same shape.
HostTensor& next_tensor(std::vector<HostTensor>& result, std::vector<HostTensor>& reuse, const std::string& name,
                        const Shape& shape, DType dtype) {
  const std::size_t place = result.size();
  if (place < reuse.size() && reuse[place].shape == shape && reuse[place].dtype == dtype) {
    reuse[place].name = name;
    return result.emplace_back(std::move(reuse[place]));
  }
  return result.emplace_back(name, shape, dtype);
}

std::int64_t aligned(std::int64_t elements) {
  return (elements + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
}

}  // namespace

Parameter& ParameterStore::declare(const std::string& name, std::unique_ptr<WeightLayout> layout, Initializer init,
                                   ParameterRole role) {
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name;
  parameter->file_shape = layout->shape();
  parameter->layout = std::move(layout);
  parameter->init = init;
  parameter->role = role;
  parameters_.push_back(std::move(parameter));
  return *parameters_.back();
}

RunningStatistics& ParameterStore::declare_statistics(const std::string& name, std::int64_t channels) {
  auto entry = std::make_unique<RunningStatistics>();
  entry->name = name;
  entry->channels = channels;
  batch_norms_.push_back(std::move(entry));
  return *batch_norms_.back();
}

void ParameterStore::freeze(std::size_t first_parameter, std::size_t first_norm) {
  for (std::size_t i = first_parameter; i < parameters_.size(); ++i) parameters_[i]->frozen = true;
  for (std::size_t i = first_norm; i < batch_norms_.size(); ++i) batch_norms_[i]->frozen = true;
}

void ParameterStore::finalize(std::uint64_t seed) {
  std::int64_t total = 0, learned = 0;
  for (const bool frozen : {false, true}) {
    for (auto it = parameters_.rbegin(); it != parameters_.rend(); ++it) {
      if ((*it)->frozen != frozen) continue;
      (*it)->offset = total;
      total += aligned((*it)->layout->elements());
    }
    if (!frozen) learned = total;
  }
  values_ = backend_.tensor({total}, DType::kF32);
  learned_values_ = values_.view(0, {learned});
  backend_.zero(values_);
  if (backend_.weights_mirror_master()) {
    const bool same = backend_.compute_type() == DType::kF32;
    mirror_ = same ? values_ : backend_.tensor({total}, backend_.compute_type());
  }
  for (auto& parameter : parameters_) {
    const Shape flat{parameter->layout->elements()};
    parameter->weight.layout = parameter->layout.get();
    parameter->weight.master = values_.view(parameter->offset, flat);
    if (mirror_) {
      const bool converted = parameter->layout->shape().rank() > 1;  // biases and batch norm stay float32
      parameter->weight.compute = (converted ? mirror_ : values_).view(parameter->offset, flat);
      parameter->weight.backward = parameter->weight.compute;
    }
    initialize(*parameter, seed);
  }
  finalize_statistics();
  refresh_compute();
}

const Tensor& ParameterStore::gradients() {
  if (!gradients_) place_gradients(backend_.tensor(learned_values_.shape(), DType::kF32));
  return gradients_;
}

void ParameterStore::place_gradients(const Tensor& memory) {
  if (gradients_ || memory.size() != learned_values_.size()) fail("these gradients cannot be placed there");
  gradients_ = memory;
  backend_.zero(gradients_);  // what lies between parameters stays zero
  for (auto& parameter : parameters_) {
    if (parameter->frozen) continue;
    parameter->gradient = gradients_.view(parameter->offset, {parameter->layout->elements()});
  }
}

void ParameterStore::finalize_statistics() {
  std::int64_t channels = 0, learned = 0;
  for (const auto& bn : batch_norms_) {
    channels += bn->channels;
    if (!bn->frozen) learned += bn->channels;
  }
  running_ = backend_.tensor({2 * channels}, DType::kF32);
  statistics_ = backend_.tensor({2 * learned}, DType::kF32);
  backend_.zero(statistics_);
  std::int64_t at = 0;
  for (const bool frozen : {false, true}) {
    for (auto& bn : batch_norms_) {
      if (bn->frozen != frozen) continue;
      const Shape flat{bn->channels};
      bn->mean = running_.view(at, flat);
      bn->variance = running_.view(at + bn->channels, flat);
      if (!frozen) {
        bn->step_mean = statistics_.view(at, flat);
        bn->step_variance = statistics_.view(at + bn->channels, flat);
      }
      at += 2 * bn->channels;
      backend_.zero(bn->mean);
      const std::vector<float> ones(static_cast<std::size_t>(bn->channels), 1.0F);
      backend_.copy_from_host(ones.data(), bn->variance);
    }
  }
}

void ParameterStore::initialize(Parameter& parameter, std::uint64_t seed) {
  if (rehearsing()) return;
  const std::uint64_t key = random_key(seed, parameter.name);
  const Shape& shape = parameter.layout->shape();
  const std::int64_t row = shape.size() / shape[0];
  const std::int64_t first = parameter.shard ? parameter.shard->first * row : 0;
  std::vector<float> host(static_cast<std::size_t>(parameter.shard ? parameter.shard->count * row : shape.size()),
                          parameter.init.scale);
  const double scale = parameter.init.scale;
  for (std::size_t i = 0; i < host.size(); ++i) {
    const std::uint64_t place = static_cast<std::uint64_t>(first) + i;  // in the whole parameter
    if (parameter.init.kind == Initializer::Kind::kUniform) {
      host[i] = static_cast<float>(scale * (2 * random_uniform(key, place) - 1));
    } else if (parameter.init.kind == Initializer::Kind::kNormal) {
      host[i] = static_cast<float>(scale * random_normal(key, place));
    }
  }
  host.resize(static_cast<std::size_t>(shape.size()));
  backend_.import_weight(*parameter.layout, host.data(), parameter.weight.master);
}

void ParameterStore::begin_step() {
  static_cast<void>(gradients());
  for (auto& parameter : parameters_) parameter->has_gradient = false;
  backend_.zero(statistics_);
}

void ParameterStore::update_running_statistics() {
  if (statistics_.size() == 0) return;
  average_statistics(running_);
  for (auto& bn : batch_norms_) bn->batches += bn->frozen ? 0 : 1;
}

void ParameterStore::average_statistics(const Tensor& running) {
  if (statistics_.size() == 0) return;
  // running += momentum * (step - running), in one pass over the flat buffers
  const Tensor learned = running.view(0, statistics_.shape());
  backend_.run(ops::Axpy{-kMomentum, learned, learned});
  backend_.run(ops::Axpy{kMomentum, statistics_, learned});
}

void ParameterStore::refresh_learned(std::int64_t begin, std::int64_t end) {
  if (mirror_) {
    if (mirror_.dtype() != DType::kF32 && end > begin) {
      backend_.run(ops::Cast{values_.view(begin, {end - begin}), mirror_.view(begin, {end - begin})});
    }
    return;
  }
  for (auto& parameter : parameters_) {
    const bool within = parameter->offset >= begin && parameter->offset < end;
    if (within && !parameter->frozen) backend_.refresh_compute(parameter->weight);
  }
}

void ParameterStore::refresh_compute() {
  if (mirror_) {
    if (mirror_.dtype() != DType::kF32) backend_.run(ops::Cast{values_, mirror_});
    return;
  }
  for (auto& parameter : parameters_) backend_.refresh_compute(parameter->weight);
}

std::vector<ParameterStore::Piece> ParameterStore::value_pieces() const {
  std::vector<Piece> pieces;
  for (const auto& p : parameters_) pieces.push_back({p->name, p->offset, p->layout->elements()});
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  return pieces;
}

std::vector<ParameterStore::Piece> ParameterStore::running_pieces() const {
  std::vector<Piece> pieces;
  std::int64_t at = 0;
  for (const bool frozen : {false, true}) {  // as finalize_statistics() lays them out
    for (const auto& bn : batch_norms_) {
      if (bn->frozen != frozen) continue;
      pieces.push_back({bn->name + ".running_mean", at, bn->channels});
      pieces.push_back({bn->name + ".running_var", at + bn->channels, bn->channels});
      at += 2 * bn->channels;
    }
  }
  return pieces;
}

std::vector<std::int64_t> ParameterStore::batch_counts() const {
  std::vector<std::int64_t> counts;
  for (const auto& bn : batch_norms_) counts.push_back(bn->batches);
  return counts;
}

void ParameterStore::set_batch_counts(const std::vector<std::int64_t>& counts) {
  for (std::size_t i = 0; i < batch_norms_.size(); ++i) batch_norms_[i]->batches = counts.at(i);
}

std::vector<Segment> ParameterStore::segments() const {
  std::vector<Segment> result;
  for (const auto& p : parameters_) {
    if (!p->frozen) result.push_back({p->offset, p->layout->elements(), p->role == ParameterRole::kWeight});
  }
  return result;
}

std::int64_t ParameterStore::sharded_elements() const {
  std::int64_t elements = 0;
  for (const auto& p : parameters_) {
    if (p->shard) elements = std::max(elements, final_elements(*p));
  }
  return elements;
}

std::int64_t ParameterStore::final_elements(const Parameter& parameter) {
  return parameter.offset + aligned(parameter.layout->elements());
}

std::vector<TensorEntry> ParameterStore::manifest(std::size_t first_parameter, std::size_t first_norm) const {
  std::vector<TensorEntry> entries;
  for (std::size_t i = first_parameter; i < parameters_.size(); ++i) {
    entries.push_back({parameters_[i]->name, parameters_[i]->file_shape, DType::kF32, false});
  }
  for (std::size_t i = first_norm; i < batch_norms_.size(); ++i) {
    const RunningStatistics& bn = *batch_norms_[i];
    entries.push_back({bn.name + ".running_mean", {bn.channels}, DType::kF32, true});
    entries.push_back({bn.name + ".running_var", {bn.channels}, DType::kF32, true});
    entries.push_back({bn.name + ".num_batches_tracked", {}, DType::kI64, true});
  }
  return entries;
}

std::vector<HostTensor> ParameterStore::export_slot(const Tensor& flat, std::vector<HostTensor> reuse,
                                                    const Tensor& running) const {
  std::vector<HostTensor> result;
  result.reserve(reuse.size());
  for (const auto& p : parameters_) {
    if (p->shard) continue;
    HostTensor& host = next_tensor(result, reuse, p->name, p->file_shape, DType::kF32);
    if (final_elements(*p) > flat.size()) {
      std::fill(host.bytes.begin(), host.bytes.end(), std::byte{0});
    } else {
      backend_.export_weight(*p->layout, flat.view(p->offset, {p->layout->elements()}), host.data<float>());
    }
  }
  if (!running) return result;
  for (const Piece& piece : running_pieces()) {
    HostTensor& host = next_tensor(result, reuse, piece.name, {piece.elements}, DType::kF32);
    backend_.copy_to_host(running.view(piece.offset, {piece.elements}), host.data<float>());
  }
  return result;
}

std::vector<HostTensor> ParameterStore::export_model(std::vector<HostTensor> reuse) const {
  std::vector<HostTensor> result;
  result.reserve(reuse.size());
  for (const auto& p : parameters_) {
    if (p->shard) continue;
    HostTensor& host = next_tensor(result, reuse, p->name, p->file_shape, DType::kF32);
    backend_.export_weight(*p->layout, p->weight.master, host.data<float>());
  }
  for (const auto& bn : batch_norms_) {
    const Shape shape{bn->channels};
    HostTensor& mean = next_tensor(result, reuse, bn->name + ".running_mean", shape, DType::kF32);
    backend_.copy_to_host(bn->mean, mean.data<float>());
    HostTensor& variance = next_tensor(result, reuse, bn->name + ".running_var", shape, DType::kF32);
    backend_.copy_to_host(bn->variance, variance.data<float>());
    HostTensor& batches = next_tensor(result, reuse, bn->name + ".num_batches_tracked", Shape{}, DType::kI64);
    *batches.data<std::int64_t>() = bn->batches;
  }
  return result;
}

void ParameterStore::import_slot(const std::vector<HostTensor>& tensors, const Tensor& flat, const std::string& source,
                                 const Tensor& running) {
  const std::vector<TensorEntry> wanted = running ? averaged(manifest()) : only_parameters(manifest());
  const auto found = match_manifest(wanted, tensors, source);
  if (running) {
    for (const Piece& piece : running_pieces()) {
      const auto at = std::find_if(found.begin(), found.end(), [&](const auto* t) { return t->name == piece.name; });
      backend_.copy_from_host((*at)->bytes.data(), running.view(piece.offset, {piece.elements}));
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& p = parameters_[i];
    if (p->shard || final_elements(*p) > flat.size()) continue;
    backend_.import_weight(*p->layout, found[i]->data<float>(), flat.view(p->offset, {p->layout->elements()}));
  }
}

std::vector<float> ParameterStore::export_rows(const Parameter& parameter, const Tensor& flat) const {
  const WeightLayout& layout = *parameter.layout;
  std::vector<float> rows(static_cast<std::size_t>(layout.shape().size()));
  backend_.export_weight(layout, flat.view(parameter.offset, {layout.elements()}), rows.data());
  rows.resize(static_cast<std::size_t>(layout.shape().size() / layout.shape()[0] * parameter.shard->count));
  return rows;
}

void ParameterStore::import_rows(const Parameter& parameter, std::vector<float> rows, const Tensor& flat) {
  const WeightLayout& layout = *parameter.layout;
  rows.resize(static_cast<std::size_t>(layout.shape().size()));
  backend_.import_weight(layout, rows.data(), flat.view(parameter.offset, {layout.elements()}));
}

void ParameterStore::import_model(const std::vector<HostTensor>& tensors, const std::string& source,
                                  const std::string& skip) {
  const auto found = match_manifest(manifest(), tensors, source, skip);
  auto next = found.begin();  // in the order of manifest()
  for (auto& p : parameters_) {
    const HostTensor* tensor = *next++;
    if (tensor != nullptr && !p->shard) backend_.import_weight(*p->layout, tensor->data<float>(), p->weight.master);
  }
  for (auto& bn : batch_norms_) {
    backend_.copy_from_host((*next++)->bytes.data(), bn->mean);
    backend_.copy_from_host((*next++)->bytes.data(), bn->variance);
    bn->batches = *(*next++)->data<std::int64_t>();
  }
  refresh_compute();
}

}  // namespace convoy
