// SPDX-License-Identifier: Apache-2.0
#include "layers/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace convoy {

void Optimizer::allocate(const OptimizerShard& shard) {
  const std::int64_t total = store_.learned_values().size();
  for (int i = 0; i < shard.count; ++i) shard_bounds_.push_back(cut_from(total * i / shard.count));
  shard_bounds_.push_back(total);
  shard_ = static_cast<std::size_t>(shard.index);
  for (auto& [name, slot] : slots_) {
    slot = backend_.tensor({shard_end() - shard_begin()}, DType::kF32);
    backend_.zero(slot);
  }
}

void Optimizer::exclude_from_decay(const std::vector<std::string>& names) {
  const auto named = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  const bool norms = named("norm"), biases = named("bias");
  if (!norms && !biases) return;
  std::vector<std::uint8_t> flags(static_cast<std::size_t>(store_.learned_values().size() / kParameterAlignment));
  for (const auto& p : store_.parameters()) {
    if (p->frozen || !((norms && p->is_norm()) || (biases && p->is_bias()))) continue;
    std::fill(flags.begin() + p->offset / kParameterAlignment,
              flags.begin() + ParameterStore::final_elements(*p) / kParameterAlignment, 1);
  }
  if (flags.empty()) return;
  no_decay_ = backend_.tensor({static_cast<std::int64_t>(flags.size())}, DType::kU8);
  backend_.copy_from_host(flags.data(), no_decay_);
}

std::int64_t Optimizer::cut_from(std::int64_t element) const {
  const std::int64_t aligned = (element + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
  return std::min(aligned, store_.learned_values().size());
}

std::int64_t Optimizer::segment_from(std::int64_t element) const {
  std::int64_t first = element == 0 ? 0 : store_.learned_values().size();
  for (const Segment& segment : segments_) {
    if (segment.offset >= element) first = std::min(first, segment.offset);
  }
  return first;
}

std::vector<std::int64_t> Optimizer::bounds(std::int64_t elements) const {
  std::vector<std::int64_t> bounds{0};
  const std::int64_t total = store_.learned_values().size();
  while (bounds.back() < total) bounds.push_back(cut_from(bounds.back() + elements));
  return bounds;
}

std::vector<Segment> Optimizer::segments_of(std::int64_t begin, std::int64_t end) const {
  std::vector<Segment> part;
  for (const Segment& s : segments_) {
    if (s.offset >= begin && s.offset < end) part.push_back({s.offset - begin, s.elements, s.adapt});
  }
  return part;
}

namespace {

ops::AdamwUpdate::Hyperparameters adam_hyperparameters(const auto& options, double lr, std::int64_t update) {
  const auto t = static_cast<double>(update + 1);
  const auto [beta1, beta2] = options.betas;
  return {static_cast<float>(lr),
          static_cast<float>(options.epsilon),
          static_cast<float>(options.weight_decay),
          beta1,
          beta2,
          1 - std::pow(beta1, t),
          1 - std::pow(beta2, t)};
}

class Sgd final : public Optimizer {
 public:
  Sgd(const SgdOptions& options, Backend& backend, ParameterStore& store)
      : Optimizer(backend, store), options_(options) {
    add_slot("momentum");
  }
  void apply(double lr, std::int64_t /*update*/, std::int64_t begin, const Tensor& values, const Slots& slots,
             const Tensor& nonfinite) override {
    backend_.run(ops::SgdUpdate{{static_cast<float>(lr), static_cast<float>(options_.momentum),
                                 static_cast<float>(options_.weight_decay), options_.nesterov},
                                values,
                                gradients_of(begin, values),
                                slots[0].second,
                                nonfinite,
                                no_decay_of(begin, values)});
  }

 private:
  SgdOptions options_;
};

class Adamw final : public Optimizer {
 public:
  Adamw(const AdamwOptions& options, Backend& backend, ParameterStore& store)
      : Optimizer(backend, store), options_(options) {
    add_slot("exp_avg");
    add_slot("exp_avg_sq");
  }
  void apply(double lr, std::int64_t update, std::int64_t begin, const Tensor& values, const Slots& slots,
             const Tensor& nonfinite) override {
    backend_.run(ops::AdamwUpdate{adam_hyperparameters(options_, lr, update), values, gradients_of(begin, values),
                                  slots[0].second, slots[1].second, nonfinite, no_decay_of(begin, values)});
  }

 private:
  AdamwOptions options_;
};

class Lars final : public Optimizer {
 public:
  Lars(const LarsOptions& options, Backend& backend, ParameterStore& store)
      : Optimizer(backend, store), options_(options) {
    add_slot("momentum");
  }
  void apply(double lr, std::int64_t /*update*/, std::int64_t begin, const Tensor& values, const Slots& slots,
             const Tensor& nonfinite) override {
    backend_.run(ops::LarsUpdate{
        {static_cast<float>(lr), static_cast<float>(options_.momentum), static_cast<float>(options_.weight_decay),
         static_cast<float>(options_.trust), static_cast<float>(options_.epsilon)},
        segments_of(begin, begin + values.size()),
        values,
        gradients_of(begin, values),
        slots[0].second,
        nonfinite});
  }
  // At segments, which have a norm each.
  [[nodiscard]] std::int64_t cut_from(std::int64_t element) const override { return segment_from(element); }

 private:
  LarsOptions options_;
};

class Lamb final : public Optimizer {
 public:
  Lamb(const LambOptions& options, Backend& backend, ParameterStore& store)
      : Optimizer(backend, store), options_(options) {
    add_slot("exp_avg");
    add_slot("exp_avg_sq");
  }
  void apply(double lr, std::int64_t update, std::int64_t begin, const Tensor& values, const Slots& slots,
             const Tensor& nonfinite) override {
    backend_.run(ops::LambUpdate{adam_hyperparameters(options_, lr, update), segments_of(begin, begin + values.size()),
                                 values, gradients_of(begin, values), slots[0].second, slots[1].second, nonfinite,
                                 no_decay_of(begin, values)});
  }
  [[nodiscard]] std::int64_t cut_from(std::int64_t element) const override { return segment_from(element); }

 private:
  LambOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> SgdOptions::make(Backend& backend, ParameterStore& store) const {
  return std::make_unique<Sgd>(*this, backend, store);
}

std::unique_ptr<Optimizer> LarsOptions::make(Backend& backend, ParameterStore& store) const {
  return std::make_unique<Lars>(*this, backend, store);
}

template <>
std::unique_ptr<Optimizer> AdamwOptions::make(Backend& backend, ParameterStore& store) const {
  return std::make_unique<Adamw>(*this, backend, store);
}

template <>
std::unique_ptr<Optimizer> LambOptions::make(Backend& backend, ParameterStore& store) const {
  return std::make_unique<Lamb>(*this, backend, store);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, Backend& backend, ParameterStore& store,
                                          const std::vector<std::string>& no_decay, const OptimizerShard& shard) {
  auto optimizer = std::visit([&](const auto& options) { return options.make(backend, store); }, choice);
  optimizer->allocate(shard);
  optimizer->exclude_from_decay(no_decay);
  return optimizer;
}

}  // namespace convoy
