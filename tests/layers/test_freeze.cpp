// SPDX-License-Identifier: Apache-2.0
//
// Frozen units: what learns gets the gradients that it would get anyway, what is frozen keeps every bit, and work that
// nobody needs is not done. The comparison with PyTorch is in tests/interop.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "layers/backend/observe/profile_backend.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/models/models.h"
#include "tests/layers/training.h"

using namespace convoy;

namespace {

const Shape kInput{4, 3, 8, 8};

// No batch norm: frozen units then compute what they would compute anyway.
std::vector<Unit> plain_net(const std::vector<std::string>& frozen) {
  auto units = sequential_model({{"a", Conv2dOptions{.out_channels = 8, .kernel_size = 3, .stride = 1, .padding = 1}},
                                 {"a_relu", ReluOptions{}},
                                 {"b", Conv2dOptions{.out_channels = 8, .kernel_size = 3, .stride = 2, .padding = 1}},
                                 {"b_relu", ReluOptions{}},
                                 {"flat", FlattenOptions{}},
                                 {"c", LinearOptions{.out_features = 16}},
                                 {"c_relu", ReluOptions{}},
                                 {"d", LinearOptions{.out_features = 5}}});
  for (Unit& unit : units) unit.frozen = std::find(frozen.begin(), frozen.end(), unit.name) != frozen.end();
  return units;
}

std::vector<Unit> small_resnet(const std::vector<std::string>& frozen) {
  auto units = resnet_model(18, Stem::kSmall, 5);
  for (Unit& unit : units) {
    for (const std::string& name : frozen) unit.frozen |= unit.name.starts_with(name);
  }
  return units;
}

using Values = std::map<std::string, std::vector<std::byte>>;

Values by_name(std::vector<HostTensor> tensors) {
  Values values;
  for (HostTensor& tensor : tensors) values[tensor.name] = std::move(tensor.bytes);
  return values;
}

Values gradients_of(Training& training) {
  ParameterStore& store = training.model().parameters();
  return by_name(store.export_slot(store.gradients()));
}

Values values_of(Training& training) { return by_name(training.model().parameters().export_model()); }

bool belongs(const std::string& name, const std::vector<std::string>& units) {
  return std::any_of(units.begin(), units.end(), [&](const std::string& unit) { return name.starts_with(unit + "."); });
}

}  // namespace

TEST_CASE("what learns has the gradients of a model without frozen units") {
  OnednnBackend backend(1, DType::kF32);
  Training whole(backend, plain_net({}), kInput);
  whole.load(7);
  whole.forward_backward();
  const Values expected = gradients_of(whole);
  const std::vector<std::vector<std::string>> choices{{"a"}, {"a", "b"}, {"b"},          {"c"},
                                                      {"d"}, {"a", "c"}, {"a", "b", "c"}};
  for (const auto& frozen : choices) {
    CAPTURE(frozen.front());
    Training part(backend, plain_net(frozen), kInput);
    part.load(7);
    part.forward_backward();
    const Values own = gradients_of(part);
    CHECK(part.loss() == whole.loss());
    CHECK(own.size() == expected.size());
    for (const auto& [name, bytes] : own) {
      CAPTURE(name);
      if (belongs(name, frozen)) {
        CHECK(bytes == std::vector<std::byte>(bytes.size()));  // an optimizer's state of it is zeros
      } else {
        CHECK(bytes == expected.at(name));
      }
    }
  }
}

TEST_CASE("frozen parameters and statistics keep every bit under every optimizer") {
  constexpr double kDecay = 0.1;
  const std::vector<std::string> frozen{"conv1", "bn1", "layer1", "layer3.0"};
  for (const OptimizerChoice& optimizer :
       {OptimizerChoice(SgdOptions{.weight_decay = kDecay}), OptimizerChoice(AdamwOptions{.weight_decay = kDecay}),
        OptimizerChoice(LarsOptions{.weight_decay = kDecay, .epsilon = 1e-8})}) {
    OnednnBackend backend(1, DType::kF32);
    Training training(backend, small_resnet({"stem", "layer1", "layer3.0"}), kInput, optimizer);
    const Values before = values_of(training);
    for (int step = 0; step < 3; ++step) {
      training.load(static_cast<std::uint64_t>(step));
      training.step(0.01);
    }
    for (const auto& [name, bytes] : values_of(training)) {
      CAPTURE(name);
      CHECK((bytes == before.at(name)) == belongs(name, frozen));
    }
  }
}

TEST_CASE("frozen units above what learns pass the gradient on, and nothing is left over") {
  // Finite differences would need float64; instead the gradient of the stem through frozen batch norms is that of an
  // affine map: with both backwards apart and together it must be the same, and the cache empty after either.
  OnednnBackend backend(1, DType::kF32);
  Model model(backend, small_resnet({"layer1", "layer2", "layer3", "layer4"}), kInput, 3);
  Cache cache = model.make_cache();
  const Tensor x = backend.tensor(kInput, DType::kF32);
  std::vector<float> host(static_cast<std::size_t>(x.size()));
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(random_normal(1, i));
  backend.copy_from_host(host.data(), x);
  std::vector<Values> gradients;
  for (const bool apart : {false, true}) {
    model.parameters().begin_step();
    const Tensor y = model.forward(x, cache, Mode::kTraining);
    const Tensor dy = backend.tensor(y.shape(), DType::kF32);
    backend.copy_from_host(host.data(), dy);
    const auto ignore = [](std::int64_t) {};
    if (apart) {
      model.backward_input(dy, cache);
      model.backward_weight(cache, ignore);
    } else {
      model.backward(dy, cache, ignore);
    }
    CHECK(cache.bytes() == 0);
    gradients.push_back(by_name(model.parameters().export_slot(model.parameters().gradients())));
  }
  CHECK(gradients[0] == gradients[1]);
  CHECK(gradients[0].at("conv1.weight") != std::vector<std::byte>(gradients[0].at("conv1.weight").size()));
}

TEST_CASE("below the lowest unit that learns nothing is kept, computed or sent") {
  OnednnBackend backend(1, DType::kF32);
  Model model(backend, small_resnet({"stem", "layer1", "layer2", "layer3", "layer4"}), kInput, 3, nullptr,
              {{0, 4}, {4, 10}});
  CHECK(model.parameters().gradients().size() < 64 * 64 * 9);  // fc alone, and padding: less than any block
  CHECK(model.parameters().statistics().size() == 0);
  CHECK_FALSE(model.learns_up_to(0));
  CHECK_FALSE(model.learns_before(1));
  CHECK(model.learns_up_to(1));
  Cache cache = model.make_cache();
  const Tensor x = backend.tensor(kInput, DType::kF32);
  backend.zero(x);
  const Tensor middle = model.forward(x, cache, Mode::kTraining, 0);
  CHECK(cache.bytes() == 0);
  const Tensor y = model.forward(middle, cache, Mode::kTraining, 1);
  std::vector<std::int64_t> done;
  const auto note = [&](std::int64_t elements) { done.push_back(elements); };
  CHECK_FALSE(model.backward(y, cache, note, 1));
  CHECK_FALSE(model.backward(Tensor(), cache, note, 0));
  CHECK(done == std::vector<std::int64_t>{model.chunk_end(1)});
  CHECK(model.chunk_end(0) == model.chunk_end(1));
}

TEST_CASE("the lowest layer that learns makes no gradient of its input, also above layers without parameters") {
  OnednnBackend backend(1, DType::kF32);
  ProfileBackend profile(backend);
  Training mlp(profile, mlp_model({16, 8}, 5), kInput);  // fc1 flattens first, in the same unit
  mlp.load(7);
  mlp.forward_backward();
  std::map<std::string, std::int64_t> calls;
  for (const auto& [key, entry] : profile.entries()) calls[key.operation] += entry.calls;
  CHECK(calls["linear_backward_weight"] == 3);
  CHECK(calls["linear_backward_input"] == 2);
  CHECK(calls["unflatten"] == 0);

  Training apart(backend,
                 sequential_model({{"flat", FlattenOptions{}},
                                   {"fc1", LinearOptions{.out_features = 16}},
                                   {"fc1_relu", ReluOptions{}},
                                   {"fc2", LinearOptions{.out_features = 8}},
                                   {"fc2_relu", ReluOptions{}},
                                   {"fc3", LinearOptions{.out_features = 5}}}),
                 kInput);
  apart.load(7);
  apart.forward_backward();
  CHECK(gradients_of(mlp) == gradients_of(apart));
}

TEST_CASE("a model in which nothing learns is refused") {
  OnednnBackend backend(1, DType::kF32);
  CHECK_THROWS_WITH_AS(Model(backend, plain_net({"a", "b", "c", "d"}), kInput, 1),
                       "model.freeze: names every unit that has parameters: there is nothing to train (leave out one)",
                       Error);
}
