// SPDX-License-Identifier: Apache-2.0
//
// Updates in parts, what weight decay leaves alone, clipping, and the average of the weights.
#include "layers/optim/optimizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/backend/observe/host_values.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/model.h"
#include "layers/models/models.h"
#include "layers/optim/gradient_clip.h"
#include "layers/optim/weight_average.h"
#include "tests/layers/backend/random_data.h"

using namespace convoy;

namespace {

constexpr int kUpdates = 3;
constexpr int kConvolutions = 16;

// Convolutions of 83,000 weights each but for the first, with batch norms, and a linear layer at the end.
std::vector<Unit> many_layers() {
  std::vector<LayerOptions> layers;
  for (int i = 0; i < kConvolutions; ++i) {
    layers.push_back({"conv" + std::to_string(i), Conv2dOptions{.out_channels = 96, .kernel_size = 3, .padding = 1}});
    layers.push_back({"bn" + std::to_string(i), BatchNorm2dOptions{}});
  }
  layers.push_back({"flatten", FlattenOptions{}});
  layers.push_back({"fc", LinearOptions{.out_features = 3}});
  return sequential_model(layers);
}

struct Updated {
  std::size_t parts = 0;
  std::vector<std::vector<std::byte>> buffers;  // values, slots
  double nonfinite = 0;
};

// Random parameters after some updates by random gradients, in parts of about `elements`; 0: all at once. Of a shard:
// its values and slots.
Updated updated(const OptimizerChoice& choice, std::int64_t elements, const std::vector<std::string>& no_decay,
                const OptimizerShard& shard = {}) {
  OnednnBackend backend(2, DType::kF32);
  Model model(backend, many_layers(), {4, 3, 4, 4}, 42);
  ParameterStore& store = model.parameters();
  const auto optimizer = make_optimizer(choice, backend, store, no_decay, shard);
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
  result.buffers.push_back(host_bytes(backend, optimizer->of_shard(store.learned_values())));
  for (const auto& [name, slot] : optimizer->slots()) result.buffers.push_back(host_bytes(backend, slot));
  backend.copy_to_host(nonfinite, &result.nonfinite);
  return result;
}

// The same by `count` optimizers, each with a shard, put together. None may have more than `largest` times an equal
// share.
Updated updated_in_shards(const OptimizerChoice& choice, int count, double largest) {
  Updated result;
  std::vector<std::size_t> sizes;
  for (int index = 0; index < count; ++index) {
    const Updated part = updated(choice, 0, {"norm"}, {index, count});
    result.buffers.resize(part.buffers.size());
    for (std::size_t i = 0; i < part.buffers.size(); ++i) {
      CHECK(part.buffers[i].size() == part.buffers[0].size());
      result.buffers[i].insert(result.buffers[i].end(), part.buffers[i].begin(), part.buffers[i].end());
    }
    sizes.push_back(part.buffers[0].size());
  }
  for (const std::size_t size : sizes) {
    const std::size_t cut = 16 * sizeof(float) * static_cast<std::size_t>(count);  // at multiples of 16
    CHECK(static_cast<double>(size * static_cast<std::size_t>(count)) <=
          largest * static_cast<double>(result.buffers[0].size()) + static_cast<double>(cut));
  }
  return result;
}

}  // namespace

TEST_CASE("shards have the bits of the whole, and their share of the state") {
  SgdOptions sgd;
  sgd.weight_decay = 1e-3;
  for (const int count : {2, 3, 8}) {
    CAPTURE(count);
    // LARS and LAMB update layers as a whole, each a fifteenth of this network.
    const double by_layers = 1 + 1.01 * count / (kConvolutions - 1);
    for (const auto& [choice, largest] : {std::pair{OptimizerChoice(sgd), 1.0},
                                          {OptimizerChoice(AdamwOptions{.weight_decay = 1e-2}), 1.0},
                                          {OptimizerChoice(LarsOptions{.weight_decay = 1e-3}), by_layers},
                                          {OptimizerChoice(LambOptions{.weight_decay = 1e-2}), by_layers}}) {
      CAPTURE(choice_name(choice));
      CHECK((updated_in_shards(choice, count, largest).buffers == updated(choice, 0, {"norm"}).buffers));
    }
  }
}

TEST_CASE("an update in parts has the bits of the whole") {
  SgdOptions nesterov;
  nesterov.nesterov = true;
  nesterov.weight_decay = 1e-3;
  LarsOptions lars;
  lars.weight_decay = 1e-3;
  AdamwOptions adamw;
  adamw.weight_decay = 1e-2;
  LambOptions lamb;
  lamb.weight_decay = 1e-2;
  for (const OptimizerChoice& choice :
       {OptimizerChoice(nesterov), OptimizerChoice(lars), OptimizerChoice(adamw), OptimizerChoice(lamb)}) {
    CAPTURE(choice_name(choice));
    const Updated whole = updated(choice, 0, {"norm"});
    for (const std::int64_t elements : {1 << 12, 1 << 16, 1 << 30}) {
      CAPTURE(elements);
      const Updated parts = updated(choice, elements, {"norm"});
      CHECK((elements == 1 << 30 ? parts.parts == 1 : parts.parts > 10));
      REQUIRE(parts.buffers.size() == whole.buffers.size());
      for (std::size_t i = 0; i < whole.buffers.size(); ++i) CHECK((parts.buffers[i] == whole.buffers[i]));
      CHECK(parts.nonfinite == 0);
    }
  }
}

TEST_CASE("no_decay takes norms, and biases with those of norms, out of the weight decay") {
  std::vector<LayerOptions> layers(5);
  layers[0] = {"conv", Conv2dOptions{.out_channels = 5, .kernel_size = 3}};
  layers[1] = {"bn", BatchNorm2dOptions{}};
  layers[2] = {"flatten", FlattenOptions{}};
  layers[3] = {"ln", LayerNormOptions{}};
  layers[4] = {"fc", LinearOptions{.out_features = 3}};
  SgdOptions sgd;
  sgd.weight_decay = 0.5;
  AdamwOptions adamw;
  adamw.weight_decay = 0.5;
  struct Case {
    std::vector<std::string> no_decay, kept;
  };
  const std::vector<std::string> norms{"bn.weight", "bn.bias", "ln.weight", "ln.bias"};
  const std::vector<std::string> biases{"conv.bias", "bn.bias", "ln.bias", "fc.bias"};
  const std::vector<std::string> both{"conv.bias", "bn.weight", "bn.bias", "ln.weight", "ln.bias", "fc.bias"};
  for (const OptimizerChoice& choice : {OptimizerChoice(sgd), OptimizerChoice(adamw)}) {
    for (const Case& c : {Case{{}, {}}, Case{{"norm"}, norms}, Case{{"bias"}, biases}, Case{{"bias", "norm"}, both}}) {
      CAPTURE(choice_name(choice));
      OnednnBackend backend(1, DType::kF32);
      Model model(backend, sequential_model(layers), {2, 3, 6, 6}, 1);
      ParameterStore& store = model.parameters();
      RandomData data(backend);
      backend.run(ops::Cast{data.floats(store.values().shape(), 1, 2), store.values()});
      const auto before = host_bytes(backend, store.values());
      backend.zero(store.gradients());  // so that the decay alone moves anything
      const auto optimizer = make_optimizer(choice, backend, store, c.no_decay);
      optimizer->step(0.1, 0, Tensor());
      for (const auto& p : store.parameters()) {
        CAPTURE(p->name);
        const float was = converted<float>(before, DType::kF32)[static_cast<std::size_t>(p->offset)];
        const float is = p->weight.master.data<float>()[0];
        const bool kept = std::find(c.kept.begin(), c.kept.end(), p->name) != c.kept.end();
        CHECK(is == doctest::Approx(kept ? was : 0.95F * was));
      }
    }
  }
}

TEST_CASE("gradients are clipped by their norm over the whole model, without what is frozen") {
  for (const bool freezes : {false, true}) {
    OnednnBackend backend(2, DType::kF32);
    std::vector<Unit> units = resnet_model(18, Stem::kSmall, 10);
    if (freezes) units[2].frozen = true;
    Model model(backend, std::move(units), {4, 3, 8, 8}, 42);
    ParameterStore& store = model.parameters();
    RandomData data(backend);
    backend.zero(store.gradients());
    double squares = 0;
    for (const auto& p : store.parameters()) {
      if (p->frozen) continue;
      backend.run(ops::Cast{data.floats(p->gradient.shape()), p->gradient});
      for (const float g : converted<float>(host_bytes(backend, p->gradient), DType::kF32)) {
        squares += static_cast<double>(g) * static_cast<double>(g);
      }
    }
    const auto before = converted<float>(host_bytes(backend, store.gradients()), DType::kF32);
    const Tensor norm = backend.tensor({1}, DType::kF64);
    for (const double clip_norm : {1e9, 2.0}) {
      GradientClip clip(clip_norm, model);
      CHECK(clip.measure().size() == static_cast<std::int64_t>(store.parameters().size()));
      clip.find_factor(norm);
      clip.scale(store.gradients());
      double found = 0;
      backend.copy_to_host(norm, &found);
      CHECK(std::abs(found - std::sqrt(squares)) <= 1e-12 * found);  // the same sums in another order
      const auto factor = static_cast<float>(std::min(1.0, clip_norm / (found + 1e-6)));
      const auto after = converted<float>(host_bytes(backend, store.gradients()), DType::kF32);
      for (std::size_t i = 0; i < after.size(); ++i) REQUIRE(after[i] == before[i] * factor);
    }
  }
}

TEST_CASE("the average of the weights begins as a copy, and follows by 1 - decay a step") {
  OnednnBackend backend(1, DType::kBF16);
  Model model(backend, resnet_model(18, Stem::kSmall, 10), {4, 3, 8, 8}, 42);
  ParameterStore& store = model.parameters();
  WeightAverage average(0.9, backend, store);
  const auto values = [&](const Tensor& x) { return converted<double>(host_bytes(backend, x), DType::kF32); };
  std::vector<double> expected = values(store.values());
  CHECK(values(average.weights()) == expected);
  std::vector<double> statistics = values(store.running());
  CHECK(values(average.statistics()) == statistics);
  RandomData data(backend);
  for (int update = 0; update < 4; ++update) {
    backend.run(ops::Cast{data.floats(store.values().shape()), store.values()});
    backend.run(ops::Cast{data.floats(store.running().shape(), 0, 1), store.running()});
    store.refresh_compute();
    average.update(update);
    const auto weights = values(store.values());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = update == 0 ? weights[i] : 0.9 * expected[i] + 0.1 * weights[i];
    }
    const auto running = values(store.running());
    for (std::size_t i = 0; i < statistics.size(); ++i) {
      statistics[i] = update == 0 ? running[i] : 0.9 * statistics[i] + 0.1 * running[i];
    }
  }
  const auto found = values(average.weights()), found_statistics = values(average.statistics());
  for (std::size_t i = 0; i < statistics.size(); ++i) REQUIRE(std::abs(found_statistics[i] - statistics[i]) <= 1e-6);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    REQUIRE(std::abs(found[i] - expected[i]) <= 1e-6);  // nine roundings of values up to 1
  }
  // Exchanged, the model computes with it, and exchanged again with its own weights.
  const auto weights = host_bytes(backend, store.values());
  const Tensor x = data.activations({4, 3, 8, 8});
  Cache cache = model.make_cache();
  const auto outputs = [&] { return host_bytes(backend, model.forward(x, cache, Mode::kEvaluation)); };
  const auto own = outputs();
  average.exchange();
  CHECK(values(store.values()) == found);
  CHECK(values(store.running()) == found_statistics);
  CHECK((outputs() != own));
  average.exchange();
  CHECK((host_bytes(backend, store.values()) == weights));
  CHECK((outputs() == own));
}
