// SPDX-License-Identifier: Apache-2.0
#include "layers/parameters.h"

#include <map>
#include <set>

#include "layers/base/error.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

constexpr std::int64_t kAlignment = 16;  // floats: parameters start on cache lines
constexpr float kMomentum = 0.1F;        // of running statistics, torch.nn.BatchNorm2d's default

std::int64_t aligned(std::int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

using ByName = std::map<std::string, const HostTensor*>;

// Lists every difference between what is wanted and what is there; throws when there is any.
class NameCheck {
 public:
  explicit NameCheck(const std::vector<HostTensor>& tensors) {
    for (const auto& t : tensors) there_[t.name] = &t;
  }
  const HostTensor* take(const std::string& name, const Shape& shape, DType dtype) {
    const auto found = there_.find(name);
    if (found == there_.end()) {
      missing_ += " " + name;
      return nullptr;
    }
    const HostTensor* tensor = found->second;
    there_.erase(found);
    if (tensor->shape == shape && tensor->dtype == dtype) return tensor;
    misshaped_ += fmt::format(" {} ({} {} in the file, {} {} in the model)", name, dtype_name(tensor->dtype),
                              tensor->shape.str(), dtype_name(dtype), shape.str());
    return nullptr;
  }
  void ignore(const std::string& prefix) {
    std::erase_if(there_, [&](const auto& item) { return item.first.starts_with(prefix); });
  }
  void finish(const std::string& source) const {
    std::string unknown;
    for (const auto& [name, tensor] : there_) unknown += " " + name;
    if (missing_.empty() && misshaped_.empty() && unknown.empty()) return;
    std::string text;
    if (!missing_.empty()) text += "; missing:" + missing_;
    if (!misshaped_.empty()) text += "; of another shape:" + misshaped_;
    if (!unknown.empty()) text += "; unknown:" + unknown;
    fail_usage("{}: does not belong to this model{} (check model.name, model.classes and model.stem)", source, text);
  }

 private:
  ByName there_;
  std::string missing_, misshaped_;
};

}  // namespace

Parameter& ParameterStore::declare(const std::string& name, std::unique_ptr<WeightLayout> layout, Initializer init,
                                   bool adapt) {
  for (const auto& other : parameters_) {
    if (other->name == name) fail_usage("two layers declare the parameter {} (give them different names)", name);
  }
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name;
  parameter->layout = std::move(layout);
  parameter->init = init;
  parameter->adapt = adapt;
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

void ParameterStore::finalize(std::uint64_t seed) {
  std::int64_t total = 0;
  for (auto it = parameters_.rbegin(); it != parameters_.rend(); ++it) {
    (*it)->offset = total;
    total += aligned((*it)->layout->elements());
  }
  values_ = backend_.tensor({total}, DType::kF32);
  gradients_ = backend_.tensor({total}, DType::kF32);
  backend_.zero(values_);
  backend_.zero(gradients_);
  for (auto& parameter : parameters_) {
    const Shape flat{parameter->layout->elements()};
    parameter->weight.layout = parameter->layout.get();
    parameter->weight.master = values_.view(parameter->offset, flat);
    parameter->gradient = gradients_.view(parameter->offset, flat);
    initialize(*parameter, seed);
  }
  std::int64_t channels = 0;
  for (const auto& bn : batch_norms_) channels += bn->channels;
  running_ = backend_.tensor({2 * channels}, DType::kF32);
  statistics_ = backend_.tensor({2 * channels}, DType::kF32);
  backend_.zero(statistics_);
  std::int64_t at = 0;
  for (auto& bn : batch_norms_) {
    const Shape flat{bn->channels};
    bn->mean = running_.view(at, flat);
    bn->step_mean = statistics_.view(at, flat);
    at += bn->channels;
    bn->variance = running_.view(at, flat);
    bn->step_variance = statistics_.view(at, flat);
    at += bn->channels;
    backend_.zero(bn->mean);
    const std::vector<float> ones(static_cast<std::size_t>(bn->channels), 1.0F);
    backend_.copy_from_host(ones.data(), bn->variance);
  }
  refresh_compute();
}

void ParameterStore::initialize(Parameter& parameter, std::uint64_t seed) {
  const std::uint64_t key = random_key(seed, parameter.name);
  std::vector<float> host(static_cast<std::size_t>(parameter.layout->shape().size()), parameter.init.scale);
  const double scale = parameter.init.scale;
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (parameter.init.kind == Initializer::Kind::kUniform) {
      host[i] = static_cast<float>(scale * (2 * random_uniform(key, i) - 1));
    } else if (parameter.init.kind == Initializer::Kind::kNormal) {
      host[i] = static_cast<float>(scale * random_normal(key, i));
    }
  }
  backend_.import_weight(*parameter.layout, host.data(), parameter.weight.master);
}

void ParameterStore::begin_step() {
  for (auto& parameter : parameters_) parameter->has_gradient = false;
  backend_.zero(statistics_);
}

void ParameterStore::update_running_statistics() {
  if (batch_norms_.empty()) return;
  // running += momentum * (step - running), in one pass over the flat buffers
  backend_.axpy(-kMomentum, running_, running_);
  backend_.axpy(kMomentum, statistics_, running_);
  for (auto& bn : batch_norms_) ++bn->batches;
}

void ParameterStore::refresh_compute() {
  for (auto& parameter : parameters_) backend_.refresh_compute(parameter->weight);
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
  for (const auto& p : parameters_) result.push_back({p->offset, p->layout->elements(), p->adapt});
  return result;
}

std::int64_t ParameterStore::final_elements(const Parameter& parameter) {
  return parameter.offset + aligned(parameter.layout->elements());
}

std::int64_t ParameterStore::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& p : parameters_) count += p->layout->shape().size();
  return count;
}

std::vector<HostTensor> ParameterStore::export_slot(const Tensor& flat) const {
  std::vector<HostTensor> result;
  for (const auto& p : parameters_) {
    HostTensor& host = result.emplace_back(p->name, p->layout->shape(), DType::kF32);
    backend_.export_weight(*p->layout, flat.view(p->offset, {p->layout->elements()}), host.data<float>());
  }
  return result;
}

std::vector<HostTensor> ParameterStore::export_model() const {
  std::vector<HostTensor> result = export_slot(values_);
  for (const auto& bn : batch_norms_) {
    HostTensor& mean = result.emplace_back(bn->name + ".running_mean", Shape{bn->channels}, DType::kF32);
    backend_.copy_to_host(bn->mean, mean.data<float>());
    HostTensor& variance = result.emplace_back(bn->name + ".running_var", Shape{bn->channels}, DType::kF32);
    backend_.copy_to_host(bn->variance, variance.data<float>());
    HostTensor& batches = result.emplace_back(bn->name + ".num_batches_tracked", Shape{}, DType::kI64);
    *batches.data<std::int64_t>() = bn->batches;
  }
  return result;
}

void ParameterStore::import_slot(const std::vector<HostTensor>& tensors, const Tensor& flat,
                                 const std::string& source) {
  NameCheck check(tensors);
  std::vector<const HostTensor*> found;
  for (const auto& p : parameters_) found.push_back(check.take(p->name, p->layout->shape(), DType::kF32));
  check.finish(source);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& p = parameters_[i];
    backend_.import_weight(*p->layout, found[i]->data<float>(), flat.view(p->offset, {p->layout->elements()}));
  }
}

void ParameterStore::import_model(const std::vector<HostTensor>& tensors, const std::string& source,
                                  const std::string& skip) {
  NameCheck check(tensors);
  if (!skip.empty()) check.ignore(skip);
  const auto skipped = [&](const std::string& name) { return !skip.empty() && name.starts_with(skip); };
  std::map<const void*, const HostTensor*> found;
  for (const auto& p : parameters_) {
    if (!skipped(p->name)) found[p.get()] = check.take(p->name, p->layout->shape(), DType::kF32);
  }
  for (const auto& bn : batch_norms_) {
    found[&bn->mean] = check.take(bn->name + ".running_mean", {bn->channels}, DType::kF32);
    found[&bn->variance] = check.take(bn->name + ".running_var", {bn->channels}, DType::kF32);
    found[&bn->batches] = check.take(bn->name + ".num_batches_tracked", {}, DType::kI64);
  }
  check.finish(source);
  for (auto& p : parameters_) {
    if (!skipped(p->name)) backend_.import_weight(*p->layout, found[p.get()]->data<float>(), p->weight.master);
  }
  for (auto& bn : batch_norms_) {
    backend_.copy_from_host(found[&bn->mean]->bytes.data(), bn->mean);
    backend_.copy_from_host(found[&bn->variance]->bytes.data(), bn->variance);
    bn->batches = *found[&bn->batches]->data<std::int64_t>();
  }
  refresh_compute();
}

}  // namespace convoy
