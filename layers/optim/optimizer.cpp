// SPDX-License-Identifier: Apache-2.0
#include "layers/optim/optimizer.h"

#include <cmath>

namespace convoy {

Tensor Optimizer::add_slot(const std::string& name) {
  Tensor slot = backend_.tensor(store_.gradients().shape(), DType::kF32);
  backend_.zero(slot);
  slots_.emplace_back(name, slot);
  return slot;
}

namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerSpec& spec, Backend& backend, ParameterStore& store)
      : Optimizer(backend, store), spec_(spec), momentum_(add_slot("momentum")) {}
  void step(double lr, std::int64_t /*update*/) override {
    backend_.run(ops::SgdUpdate{{static_cast<float>(lr), spec_.momentum, spec_.weight_decay, spec_.nesterov},
                                store_.learned_values(),
                                store_.gradients(),
                                momentum_});
  }

 private:
  OptimizerSpec spec_;
  Tensor momentum_;
};

class Adamw final : public Optimizer {
 public:
  Adamw(const OptimizerSpec& spec, Backend& backend, ParameterStore& store)
      : Optimizer(backend, store), spec_(spec), first_(add_slot("exp_avg")), second_(add_slot("exp_avg_sq")) {}
  void step(double lr, std::int64_t update) override {
    const auto t = static_cast<double>(update + 1);
    const ops::AdamwUpdate::Hyperparameters u{static_cast<float>(lr),
                                              spec_.epsilon,
                                              spec_.weight_decay,
                                              spec_.beta1,
                                              spec_.beta2,
                                              1 - std::pow(spec_.beta1, t),
                                              1 - std::pow(spec_.beta2, t)};
    backend_.run(ops::AdamwUpdate{u, store_.learned_values(), store_.gradients(), first_, second_});
  }

 private:
  OptimizerSpec spec_;
  Tensor first_, second_;
};

class Lars final : public Optimizer {
 public:
  Lars(const OptimizerSpec& spec, Backend& backend, ParameterStore& store)
      : Optimizer(backend, store), spec_(spec), momentum_(add_slot("momentum")), segments_(store.segments()) {}
  void step(double lr, std::int64_t /*update*/) override {
    backend_.run(
        ops::LarsUpdate{{static_cast<float>(lr), spec_.momentum, spec_.weight_decay, spec_.trust, spec_.epsilon},
                        segments_,
                        store_.learned_values(),
                        store_.gradients(),
                        momentum_});
  }

 private:
  OptimizerSpec spec_;
  Tensor momentum_;
  std::vector<Segment> segments_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec, Backend& backend, ParameterStore& store) {
  switch (spec.kind) {
    case OptimizerSpec::Kind::kAdamw: return std::make_unique<Adamw>(spec, backend, store);
    case OptimizerSpec::Kind::kLars: return std::make_unique<Lars>(spec, backend, store);
    case OptimizerSpec::Kind::kSgd: break;
  }
  return std::make_unique<Sgd>(spec, backend, store);
}

}  // namespace convoy
