// SPDX-License-Identifier: Apache-2.0
//
// Every layer against finite differences: the slope of sum(y * r), r fixed and random, with respect to the input and to
// each parameter, and the two halves of backward against backward as a whole.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/random.h"
#include "layers/model.h"
#include "layers/models/models.h"
#include "tests/layers/gradient_check.h"

using namespace convoy;

namespace {

std::vector<float> normals(std::int64_t count, std::uint64_t key) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random_normal(key, i));
  return values;
}

/// A network whose first layer is a 1x1 convolution or a linear layer, so that the layer under test has an input
/// gradient.
class Probe {
 public:
  Probe(std::vector<LayerOptions> layers, const Shape& input)
      : backend_(1, DType::kF32),
        model_(backend_, sequential_model(layers), input, 11),
        cache_(model_.make_cache()),
        x_(normals(input.size(), 3)),
        direction_(normals(model_.output_shape().size(), 5)) {
    // Biases and batch norm's weights start at special values: move everything off them.
    for (const auto& p : model_.parameters().parameters()) {
      if (p->role == ParameterRole::kWeight) continue;
      const auto noise = normals(p->layout->elements(), random_key(9, p->name));
      for (std::size_t i = 0; i < noise.size(); ++i) p->weight.master.data<float>()[i] += 0.3F * noise[i];
    }
  }

  /// sum(y * r) in double; the sums inside the layers are float.
  double value() {
    model_.parameters().refresh_learned();  // what the layers read may be a copy of what is moved
    model_.parameters().begin_step();
    const Tensor y = model_.forward(input(), cache_, Mode::kTraining);
    double sum = 0;
    for (std::size_t i = 0; i < direction_.size(); ++i) {
      sum += static_cast<double>(y.data<float>()[i]) * static_cast<double>(direction_[i]);
    }
    return sum;
  }

  void backward() {
    value();
    const Tensor dy = backend_.tensor(model_.output_shape(), DType::kF32);
    backend_.copy_from_host(direction_.data(), dy);
    model_.backward(dy, cache_, [](std::int64_t) {});
  }

  /// Checks the gradient of every parameter.
  void check(const GradientCheckOptions& options) {
    backward();
    for (const auto& p : model_.parameters().parameters()) {
      const auto count = static_cast<std::size_t>(p->layout->elements());
      const std::span<float> weights(p->weight.master.data<float>(), count);
      const std::vector<float> gradient(p->gradient.data<float>(), p->gradient.data<float>() + count);
      // entries that a padded layout adds have no influence and no gradient, so they agree trivially
      check_gradient(
          p->name, weights, gradient, [&] { return value(); }, options);
    }
  }

  Tensor input() {
    const Tensor x = backend_.tensor(model_.input_shape(), DType::kF32);
    backend_.copy_from_host(x_.data(), x);
    return x;
  }

  OnednnBackend backend_;
  Model model_;
  Cache cache_;
  std::vector<float> x_, direction_;
};

// Linear in each parameter: the central difference has no truncation error, only the rounding of float sums of a few
// hundred terms, 1e-5 of the value over a step of 1e-2.
const GradientCheckOptions kLinear{.step = 1e-2, .tolerance = 2e-3, .kink = 1e-2, .skipped_share = 0.0, .entries = 60};
// Batch norm and what follows it is curved (truncation about step^2) and ReLU adds kinks.
const GradientCheckOptions kCurved{.step = 3e-3, .tolerance = 2e-2, .kink = 6e-2, .skipped_share = 0.25, .entries = 40};

// A block has many ReLUs behind each weight, so a step crosses some kinks whatever its size; a small one crosses few,
// and what it costs in rounding (1e-5 of the value over the step) stays below the tolerance.
const GradientCheckOptions kBlock{.step = 3e-4, .tolerance = 3e-2, .kink = 1e-1, .skipped_share = 0.4, .entries = 30};

}  // namespace

TEST_CASE("linear, with and without bias") {
  for (const bool bias : {true, false}) {
    Probe({{"a", LinearOptions{.out_features = 7, .bias = bias}}, {"b", LinearOptions{.out_features = 5}}}, {6, 9})
        .check(kLinear);
  }
}

TEST_CASE("linear fused with relu equals linear, then relu") {
  Probe fused({{"a", LinearOptions{.out_features = 16}}, {"r", ReluOptions{}}, {"b", LinearOptions{.out_features = 3}}},
              {5, 8});
  fused.check({.step = 1e-2, .tolerance = 5e-3, .kink = 1e-2, .skipped_share = 0.3, .entries = 60});
}

TEST_CASE("conv2d: kernels 1, 3, 5, 7, strides, paddings, odd channels") {
  struct Case {
    std::int64_t channels, kernel, stride, padding;
  };
  for (const Case c : {Case{4, 1, 1, 0}, Case{8, 3, 1, 1}, Case{5, 3, 2, 1}, Case{16, 5, 1, 2}, Case{3, 7, 2, 3}}) {
    CAPTURE(c.kernel);
    Probe({{"a", Conv2dOptions{.out_channels = 6, .kernel_size = 1}},
           {"b",
            Conv2dOptions{
                .out_channels = c.channels, .kernel_size = c.kernel, .stride = c.stride, .padding = c.padding}}},
          {2, 3, 9, 9})
        .check(kLinear);
  }
}

// Convolutions before a batch norm have no bias here: its gradient is zero by construction.
TEST_CASE("batch norm, alone and fused with relu") {
  for (const bool relu : {false, true}) {
    std::vector<LayerOptions> layers{{"a", Conv2dOptions{.out_channels = 5, .kernel_size = 1, .bias = false}},
                                     {"n", BatchNorm2dOptions{}}};
    if (relu) layers.push_back({"r", ReluOptions{}});
    Probe(layers, {4, 3, 5, 5}).check(kCurved);
  }
}

// The batch norm's input is what the ReLU keeps for itself too, so the one's gradient must not take its place.
TEST_CASE("batch norm after a relu") {
  Probe({{"a", Conv2dOptions{.out_channels = 5, .kernel_size = 1}}, {"r", ReluOptions{}}, {"n", BatchNorm2dOptions{}}},
        {4, 3, 5, 5})
      .check(kBlock);
}

TEST_CASE("relu on its own, after a convolution") {
  Probe({{"a", Conv2dOptions{.out_channels = 4, .kernel_size = 3}}, {"r", ReluOptions{}}}, {2, 3, 8, 8})
      .check({.step = 1e-3, .tolerance = 2e-2, .kink = 2e-2, .skipped_share = 0.4, .entries = 60});
}

TEST_CASE("max pooling, overlapping windows with padding") {
  Probe({{"a", Conv2dOptions{.out_channels = 4, .kernel_size = 1}},
         {"p", MaxPool2dOptions{.kernel_size = 3, .stride = 2, .padding = 1}}},
        {2, 3, 9, 9})
      .check({.step = 1e-3, .tolerance = 1e-2, .kink = 1e-2, .skipped_share = 0.3, .entries = 60});
}

TEST_CASE("global average pooling and flatten") {
  Probe({{"a", Conv2dOptions{.out_channels = 4, .kernel_size = 1}}, {"g", GlobalAvgPoolOptions{}}}, {2, 3, 5, 7})
      .check(kLinear);
  Probe({{"a", Conv2dOptions{.out_channels = 4, .kernel_size = 1}},
         {"f", FlattenOptions{}},
         {"l", LinearOptions{.out_features = 3}}},
        {2, 3, 3, 5})
      .check(kLinear);
}

TEST_CASE("global max pooling") {
  Probe({{"a", Conv2dOptions{.out_channels = 4, .kernel_size = 1}}, {"g", GlobalMaxPoolOptions{}}}, {2, 3, 5, 7})
      .check({.step = 1e-3, .tolerance = 1e-2, .kink = 1e-2, .skipped_share = 0.3, .entries = 60});
  OnednnBackend backend(1, DType::kF32);
  CHECK_THROWS_WITH(Model(backend, sequential_model({{"g", GlobalMaxPoolOptions{}}}), {1, 3, 16, 4}, 1),
                    "g: global_max_pool: an input of 16x4 (at most 15x15: smaller images, or pooling before it)");
}

TEST_CASE("residual blocks, with identity and with downsample") {
  for (const char* type : {"basic_block", "bottleneck"}) {
    for (const std::int64_t stride : {1, 2}) {
      CAPTURE(type);
      CAPTURE(stride);
      const std::int64_t width = std::strcmp(type, "bottleneck") == 0 ? 16 : 4;
      LayerChoice block = BasicBlockOptions{.channels = 4, .stride = stride};
      if (width == 16) block = BottleneckOptions{.channels = 4, .stride = stride};
      Probe({{"a", Conv2dOptions{.out_channels = width, .kernel_size = 1, .bias = false}}, {"b", block}}, {4, 3, 6, 6})
          .check(kBlock);
    }
  }
}

TEST_CASE("flatten orders features as C, H, W") {
  OnednnBackend backend(1, DType::kF32);
  const Shape shape{1, 2, 2, 3};
  const Tensor x = backend.tensor(shape, DType::kF32), y = backend.tensor({1, 12}, DType::kF32);
  for (int c = 0; c < 2; ++c) {
    for (int i = 0; i < 6; ++i) x.data<float>()[i * 2 + c] = static_cast<float>(6 * c + i);  // channels-last
  }
  backend.run(ops::Flatten{x, y});
  for (int i = 0; i < 12; ++i) CHECK(y.data<float>()[i] == static_cast<float>(i));
}

TEST_CASE("the two halves of backward give the whole, bit for bit") {
  const Shape shape{4, 3, 8, 8};
  bool resnet9 = false;
  SUBCASE("ResNet-50") {}
  SUBCASE("ResNet-9") { resnet9 = true; }
  const auto gradients = [&](bool split) {
    OnednnBackend backend(1, DType::kF32);
    ParameterStore store(backend);
    BuildContext context{backend, store};
    auto units = resnet9 ? resnet9_model(10) : resnet_model(50, Stem::kSmall, 10);
    Shape out = shape;
    for (auto& unit : units) out = unit.layer->build(context, unit.path, out);
    store.finalize(1);
    Cache cache(context.layers);
    store.begin_step();
    const Tensor x = backend.tensor(shape, DType::kF32);
    backend.copy_from_host(normals(shape.size(), 1).data(), x);
    Tensor y = x;
    for (auto& unit : units) y = unit.layer->forward(y, cache, Mode::kTraining);
    Tensor dy = y;
    for (auto it = units.rbegin(); it != units.rend(); ++it) {
      dy = split ? it->layer->backward_input(dy, cache) : it->layer->backward(dy, cache);
    }
    if (split) {
      for (auto& unit : units) unit.layer->backward_weight(cache);
    }
    std::vector<float> all(static_cast<std::size_t>(store.gradients().size()));
    backend.copy_to_host(store.gradients(), all.data());
    return all;
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("running statistics converge to the batch's, and evaluation uses them") {
  Probe probe({{"a", Conv2dOptions{.out_channels = 4, .kernel_size = 1}}, {"n", BatchNorm2dOptions{}}}, {4, 3, 5, 5});
  const auto evaluate = [&] {
    const Tensor y = probe.model_.forward(probe.input(), probe.cache_, Mode::kEvaluation);
    return std::vector<float>(y.data<float>(), y.data<float>() + y.size());
  };
  const auto before = evaluate();
  for (int i = 0; i < 200; ++i) {  // 0.9^200 of the initial statistics are left: nothing in float32
    probe.value();
    probe.model_.parameters().update_running_statistics();
  }
  const auto after = evaluate();
  CHECK(before != after);
  const Tensor y = probe.model_.forward(probe.input(), probe.cache_, Mode::kTraining);
  // the running variance is unbiased, the batch's biased: they differ by n / (n - 1), n = 100
  for (std::size_t i = 0; i < after.size(); ++i) {
    CHECK(after[i] == doctest::Approx(y.data<float>()[i]).epsilon(0.02).scale(0.3));
  }
}
