// SPDX-License-Identifier: Apache-2.0
//
// An update that is cut into parts at the bounds that the optimizer gives has the bits of the whole one.
#include "layers/optim/optimizer.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "layers/backend/observe/host_values.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/model.h"
#include "layers/models/models.h"
#include "tests/layers/backend/random_data.h"

using namespace convoy;

namespace {

constexpr int kUpdates = 3;

struct Updated {
  std::size_t parts = 0;
  std::vector<std::vector<std::byte>> buffers;  // values, slots
  double nonfinite = 0;
};

// Random parameters after some updates by random gradients, in parts of about `elements`; 0: all at once.
Updated updated(const OptimizerChoice& choice, std::int64_t elements) {
  OnednnBackend backend(2, DType::kF32);
  Model model(backend, resnet_model(18, Stem::kSmall, 10), {4, 3, 8, 8}, 42);
  ParameterStore& store = model.parameters();
  const auto optimizer = make_optimizer(choice, backend, store);
  const Tensor nonfinite = backend.tensor({1}, DType::kF64);
  backend.zero(nonfinite);
  RandomData data(backend);
  Updated result;
  for (int update = 0; update < kUpdates; ++update) {
    backend.run(ops::Cast{data.floats(store.gradients().shape()), store.gradients()});
    if (elements == 0) {
      optimizer->step(0.1, update, nonfinite);
      continue;
    }
    const std::vector<std::int64_t> bounds = optimizer->bounds(elements);
    REQUIRE(bounds.front() == 0);
    REQUIRE(bounds.back() == store.gradients().size());
    result.parts = bounds.size() - 1;
    for (std::size_t part = result.parts; part-- > 0;) {  // in any order
      const Shape shape{bounds[part + 1] - bounds[part]};
      REQUIRE(shape.size() > 0);
      Optimizer::Slots slots;
      for (const auto& [name, slot] : optimizer->slots()) slots.emplace_back(name, slot.view(bounds[part], shape));
      optimizer->apply(0.1, update, bounds[part], store.learned_values().view(bounds[part], shape), slots, nonfinite);
    }
  }
  result.buffers.push_back(host_bytes(backend, store.learned_values()));
  for (const auto& [name, slot] : optimizer->slots()) result.buffers.push_back(host_bytes(backend, slot));
  backend.copy_to_host(nonfinite, &result.nonfinite);
  return result;
}

}  // namespace

TEST_CASE("an update in parts has the bits of the whole") {
  SgdOptions nesterov;
  nesterov.nesterov = true;
  nesterov.weight_decay = 1e-3;
  LarsOptions lars;
  lars.weight_decay = 1e-3;
  AdamwOptions adamw;
  adamw.weight_decay = 1e-2;
  for (const OptimizerChoice& choice : {OptimizerChoice(nesterov), OptimizerChoice(lars), OptimizerChoice(adamw)}) {
    CAPTURE(choice_name(choice));
    const Updated whole = updated(choice, 0);
    for (const std::int64_t elements : {1 << 12, 1 << 16, 1 << 30}) {
      CAPTURE(elements);
      const Updated parts = updated(choice, elements);
      CHECK((elements == 1 << 30 ? parts.parts == 1 : parts.parts > 10));
      REQUIRE(parts.buffers.size() == whole.buffers.size());
      for (std::size_t i = 0; i < whole.buffers.size(); ++i) CHECK((parts.buffers[i] == whole.buffers[i]));
      CHECK(parts.nonfinite == 0);
    }
  }
}
