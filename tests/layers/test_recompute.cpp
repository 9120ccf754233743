// SPDX-License-Identifier: Apache-2.0
//
// Recomputed units: losses, gradients and statistics have the bits that they have without recomputation, memory holds
// the inputs of blocks in place of activations, and what counts once a step is computed once.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layers/backend/observe/profile_backend.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/random.h"
#include "layers/models/models.h"
#include "layers/models/recompute.h"
#include "layers/statistics_reducer.h"
#include "tests/layers/fused_network.h"

using namespace convoy;

namespace {

const Shape kInput{4, 3, 16, 16};

std::vector<Unit> layers() {
  return sequential_model({{"conv", Conv2dOptions{.out_channels = 8, .kernel_size = 3, .padding = 1, .bias = false}},
                           {"bn", BatchNorm2dOptions{}},
                           {"relu", ReluOptions{}},
                           {"pool", MaxPool2dOptions{.kernel_size = 2}},
                           {"block", BasicBlockOptions{.channels = 16, .stride = 2}},
                           {"norm", LayerNormOptions{}},
                           {"gelu", GeluOptions{}},
                           {"flat", FlattenOptions{}},
                           {"drop", DropoutOptions{.probability = 0.3}},
                           {"hidden", LinearOptions{.out_features = 12}},
                           {"tanh", TanhOptions{}},
                           {"fc", LinearOptions{.out_features = 5}}});
}

std::vector<Unit> plain(const std::string& network) {
  if (network == "residual") return fused_network(5);
  return network == "layers" ? layers() : mlp_model({16, 12, 8}, 5);
}

std::vector<Unit> recomputed(const std::string& network) {
  std::vector<Unit> units = plain(network);
  recompute_blocks(units);
  return units;
}

/// Doubles what it sums up, as a second replica with the same samples would; counts.
struct TwoReplicas final : StatisticsReducer {
  void sum(std::span<double> values) override {
    for (double& value : values) value *= 2;
    ++sums;
  }
  int sums = 0;
};

struct Step {
  /// Two microbatches in flight, and the two halves of backward apart if `apart`.
  Step(Backend& backend, std::vector<Unit> units, bool apart = false, std::vector<UnitRange> chunks = {},
       StatisticsReducer* reducer = nullptr)
      : model(backend, std::move(units), kInput, 42, reducer, std::move(chunks)) {
    const int chunk_count = static_cast<int>(model.chunks().size());
    std::array caches{model.make_cache(), model.make_cache()};
    std::array<Tensor, 2> outputs;
    model.parameters().begin_step();
    for (std::size_t i = 0; i < 2; ++i) {
      caches[i].share = 0.5;
      model.set_position(caches[i], 3, static_cast<std::int64_t>(4 * i));
      Tensor y = random(backend, kInput, i);
      for (int chunk = 0; chunk < chunk_count; ++chunk) y = model.forward(y, caches[i], Mode::kTraining, chunk);
      outputs[i] = y;
      const std::vector<float> values = on_host(backend, y);
      results.insert(results.end(), values.begin(), values.end());
    }
    kept = caches[0].bytes();
    for (std::size_t i = 0; i < 2; ++i) {
      const auto ignore = [](std::int64_t) {};
      Tensor dy = random(backend, outputs[i].shape(), 9);
      for (int chunk = chunk_count; chunk-- > 0;) {
        dy = apart ? model.backward_input(dy, caches[i], chunk) : model.backward(dy, caches[i], ignore, chunk);
      }
      for (int chunk = chunk_count; apart && chunk-- > 0;) model.backward_weight(caches[i], ignore, chunk);
      CHECK(caches[i].bytes() == 0);
    }
    ParameterStore& store = model.parameters();
    store.update_running_statistics();
    for (const Tensor& flat : {store.gradients(), store.statistics(), store.running()}) {
      const std::vector<float> values = on_host(backend, flat);
      results.insert(results.end(), values.begin(), values.end());
    }
  }

  static Tensor random(Backend& backend, const Shape& shape, std::uint64_t key) {
    std::vector<float> host(static_cast<std::size_t>(shape.size()));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(random_normal(key, i));
    const Tensor x = backend.tensor(shape, DType::kF32);
    backend.copy_from_host(host.data(), x);
    if (backend.compute_type() == DType::kF32) return x;
    Tensor typed = backend.tensor(shape, backend.compute_type());
    backend.run(ops::Cast{x, typed});
    return typed;
  }

  static std::vector<float> on_host(Backend& backend, const Tensor& x) {
    Tensor plain = x;
    if (x.dtype() != DType::kF32) {
      plain = backend.tensor(x.shape(), DType::kF32);
      backend.run(ops::Cast{x, plain});
    }
    std::vector<float> host(static_cast<std::size_t>(x.size()));
    backend.copy_to_host(plain, host.data());
    return host;
  }

  Model model;
  std::vector<float> results;  ///< outputs, gradients, statistics of the step, running statistics
  std::size_t kept = 0;        ///< bytes in the first cache between forward and backward
};

std::vector<int> blocks(const std::vector<Unit>& units) {
  std::vector<int> numbers;
  for (const Unit& unit : units) numbers.push_back(unit.block);
  return numbers;
}

}  // namespace

TEST_CASE("recomputation changes no bit, with both backwards together and apart, and keeps less") {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const char* network : {"residual", "layers", "mlp"}) {
      CAPTURE(network);
      CAPTURE(dtype_name(compute));
      OnednnBackend backend(1, compute);
      const Step expected(backend, plain(network));
      for (const bool apart : {false, true}) {
        const Step step(backend, recomputed(network), apart);
        CHECK(step.results == expected.results);
        CHECK(step.kept < expected.kept);
      }
    }
  }
}

TEST_CASE("between forward and backward there are inputs of blocks, statistics and masks of shortcuts") {
  OnednnBackend backend(1, DType::kF32);
  const Step step(backend, recomputed("residual"));
  const std::vector<UnitInfo>& units = step.model.units();
  std::size_t bytes = 0;
  for (std::size_t i = 0; i + 1 < units.size(); ++i) {
    bytes += static_cast<std::size_t>(units[i].input.size()) * sizeof(float);
    for (const TensorEntry& entry : units[i].manifest) {
      if (entry.name.ends_with("running_mean"))
        bytes += 2 * static_cast<std::size_t>(entry.shape.size()) * sizeof(float);
    }
  }
  bytes += 4 * 16 * sizeof(float);  // the head is not recomputed: the input of its linear layer
  // Rows of bits are filled up to whole vectors, which makes at most a byte an element of these few channels.
  std::size_t masks = 0;
  for (std::size_t i = 1; i + 1 < units.size(); ++i) masks += static_cast<std::size_t>(units[i].output.size());
  CHECK(step.kept > bytes);
  CHECK(step.kept <= bytes + masks);
}

TEST_CASE("a block that stages divide is recomputed in parts") {
  OnednnBackend backend(1, DType::kF32);
  const Step expected(backend, plain("layers"));
  for (const int split : {1, 2, 5, 7}) {
    CAPTURE(split);
    const int units = static_cast<int>(plain("layers").size());
    CHECK(Step(backend, recomputed("layers"), true, {{0, split}, {split, units}}).results == expected.results);
  }
}

TEST_CASE("frozen units are recomputed with the statistics that they have, and those below what learns not at all") {
  OnednnBackend backend(1, DType::kF32);
  for (const std::vector<std::size_t>& frozen : {std::vector<std::size_t>{2}, {0, 1}, {0, 1, 2, 3}}) {
    std::vector<Unit> units = plain("residual"), again = recomputed("residual");
    for (const std::size_t i : frozen) units[i].frozen = again[i].frozen = true;
    CHECK(Step(backend, std::move(again)).results == Step(backend, std::move(units)).results);
  }
}

TEST_CASE("statistics are computed and reduced once, convolutions run forward twice") {
  OnednnBackend backend(1, DType::kF32);
  ProfileBackend once(backend), twice(backend);
  TwoReplicas reducer_once, reducer_twice;
  const Step expected(once, plain("residual"), false, {}, &reducer_once);
  const Step step(twice, recomputed("residual"), false, {}, &reducer_twice);
  CHECK(step.results == expected.results);
  CHECK(reducer_twice.sums == reducer_once.sums);
  const auto calls = [](ProfileBackend& profile, const std::string& operation) {
    std::int64_t sum = 0;
    for (const auto& [key, entry] : profile.entries()) sum += key.operation == operation ? entry.calls : 0;
    return sum;
  };
  CHECK(calls(twice, "batch_norm_statistics") == calls(once, "batch_norm_statistics"));
  CHECK(calls(twice, "conv2d_forward") == 2 * calls(once, "conv2d_forward"));
  CHECK(calls(twice, "linear_forward") == calls(once, "linear_forward"));
}

TEST_CASE("blocks are units of several layers and groups of those of one") {
  std::vector<Unit> units = resnet_model(18, Stem::kSmall, 10);
  recompute_blocks(units);
  CHECK(blocks(units) == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 0});
  // conv, bn + relu, pool | block | norm, gelu, flat | drop, hidden, tanh | fc: 9 of one layer, in groups of 3
  units = layers();
  recompute_blocks(units);
  CHECK(blocks(units) == std::vector<int>{1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 0});
  units = layers();
  std::vector<bool> chosen(units.size());
  for (const std::size_t i : {0, 1, 3, 4, 5, 6, 7, 10}) chosen[i] = true;
  recompute_chosen(units, chosen);
  CHECK(blocks(units) == std::vector<int>{1, 1, 0, 2, 3, 3, 3, 3, 0, 0, 4});
  units = toy_model(5);
  recompute_blocks(units);
  CHECK(blocks(units) == std::vector<int>{1, 0});
}
