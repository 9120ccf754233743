// SPDX-License-Identifier: Apache-2.0
//
// Models that see images of another size than they were built for: the shapes at their cuts, and their gradients,
// against models built for that size.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/random.h"
#include "layers/models/models.h"

using namespace convoy;

namespace {

/// Biases before ReLUs that open half of the channels and close the others, by four standard deviations of what batch
/// norm puts out. Where a ReLU's input lies within rounding of 0, two orders of a float32 sum may fall on either side,
/// and the gradients differ by more than any bound on rounding: with random biases that happens on most inputs.
void keep_off_kinks(ParameterStore& store) {
  std::vector<HostTensor> tensors = store.export_model();
  for (HostTensor& tensor : tensors) {
    if (!tensor.name.ends_with(".bias") || tensor.name == "fc.bias" || tensor.name == "h.bias") continue;
    for (std::int64_t c = 0; c < tensor.shape.size(); ++c) tensor.data<float>()[c] = c % 2 == 0 ? 4.0F : -4.0F;
  }
  store.import_model(tensors, "test");
}

Tensor normal_tensor(Backend& backend, const Shape& shape, std::uint64_t key) {
  std::vector<float> host(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(random_normal(key, i));
  Tensor x = backend.tensor(shape, DType::kF32);
  backend.copy_from_host(host.data(), x);
  return x;
}

/// The gradients of all parameters for a random input and a random gradient of the output.
std::vector<HostTensor> gradients(Model& model, const Shape& shape, std::uint64_t key) {
  const Tensor x = normal_tensor(model.backend(), shape, key);
  keep_off_kinks(model.parameters());
  Cache cache = model.make_cache();
  model.parameters().begin_step();
  const Tensor y = model.forward(x, cache, Mode::kTraining);
  model.backward(normal_tensor(model.backend(), y.shape(), key + 1), cache, [](std::int64_t) {});
  return model.parameters().export_slot(model.parameters().gradients());
}

/// Norm of the difference over the norm of b, or over 0.01 where that is smaller: the gradient of a bias before batch
/// norm is zero but for rounding when the ReLU between them lets everything through.
double difference(const HostTensor& a, const HostTensor& b) {
  double apart = 0, norm = 0;
  for (std::int64_t i = 0; i < a.shape.size(); ++i) {
    const double x = a.data<float>()[i], y = b.data<float>()[i];
    apart += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(apart) / std::max(std::sqrt(norm), 0.01);
}

// All layers that see images, beside the two kinds of blocks.
const std::vector<LayerOptions> kLayers = {
    {"a", Conv2dOptions{.out_channels = 4, .kernel_size = 5, .stride = 2, .padding = 1}},
    {"b", ReluOptions{}},
    {"c", MaxPool2dOptions{.kernel_size = 3, .stride = 2, .padding = 1}},
    {"d", BatchNorm2dOptions{}},
    {"e", BasicBlockOptions{.channels = 8, .stride = 2}},
    {"f", GlobalAvgPoolOptions{}},
    {"g", FlattenOptions{}},
    {"h", LinearOptions{.out_features = 3}}};

std::vector<Unit> network(int which) {
  if (which == 2) return sequential_model(kLayers);
  return resnet_model(which == 0 ? 18 : 50, which == 0 ? Stem::kSmall : Stem::kImagenet, 10);
}

}  // namespace

// What the messages between stages rely on, held unit or not.
TEST_CASE("a model tells the shapes at its cuts for every size of images") {
  OnednnBackend backend(1, DType::kF32);
  for (const int which : {0, 1, 2}) {
    const int count = static_cast<int>(network(which).size());
    const Model model(backend, network(which), {2, 3, 64, 64}, 1, nullptr, {{0, 2}, {3, count}});
    for (const std::int64_t size : {33, 40, 64, 97}) {
      const Shape input{5, 3, size, size};
      const auto infos = describe_units(backend, network(which), input);
      CHECK(model.chunk_input(0, input) == input);
      CHECK(model.chunk_output(0, input) == infos[1].output);
      CHECK(model.chunk_input(1, input) == infos[3].input);
      CHECK(model.chunk_output(1, input) == infos.back().output);
    }
  }
}

// Frozen units have no saved input to tell the size from; odd sizes are those that a stride of 2 does not give back.
TEST_CASE("images of another size than the model was built for give the gradients of a model built for it") {
  const Shape built{4, 3, 24, 24};
  for (const int which : {0, 2}) {
    for (const bool frozen : {false, true}) {
      const auto units = [&] {
        std::vector<Unit> all = network(which);
        all[3].frozen = all[4].frozen = frozen;
        return all;
      };
      for (const std::int64_t size : {14, 19, 33}) {
        const Shape shape{4, 3, size, size};
        OnednnBackend backend(1, DType::kF32);
        Model other(backend, units(), built, 42), own(backend, units(), shape, 42);
        static_cast<void>(gradients(other, built, 3));  // a step at its own size comes first
        const auto a = gradients(other, shape, 7), b = gradients(own, shape, 7);
        REQUIRE(a.size() == b.size());
        // Other weight formats may mean other kernels, and so another order of float32 sums.
        for (std::size_t i = 0; i < a.size(); ++i) CHECK_MESSAGE(difference(a[i], b[i]) < 1e-4, a[i].name);
      }
    }
  }
}
