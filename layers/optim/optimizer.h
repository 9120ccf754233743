// SPDX-License-Identifier: Apache-2.0
//
// Optimizers over the flat buffers of the parameters that learn: one backend call a step. State lies in slots, flat
// buffers of the same layout as the parameters, which checkpoints store under the parameters' names.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/parameters.h"

namespace convoy {

struct OptimizerSpec {
  enum class Kind { kSgd, kLars, kAdamw } kind = Kind::kSgd;
  float momentum = 0.9F;
  bool nesterov = false;
  float weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999;
  float epsilon = 1e-8F;
  float trust = 0.001F;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Updates the parameters from their gradients. update: how many updates came before (0 for the first).
  virtual void step(double lr, std::int64_t update) = 0;
  /// Name and buffer of each piece of state.
  [[nodiscard]] const std::vector<std::pair<std::string, Tensor>>& slots() const { return slots_; }

 protected:
  explicit Optimizer(Backend& backend, ParameterStore& store) : backend_(backend), store_(store) {}
  Tensor add_slot(const std::string& name);

  Backend& backend_;
  ParameterStore& store_;
  std::vector<std::pair<std::string, Tensor>> slots_;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec, Backend& backend, ParameterStore& store);

}  // namespace convoy
