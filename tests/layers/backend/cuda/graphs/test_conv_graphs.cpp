// SPDX-License-Identifier: Apache-2.0
//
// Every graph that the models' convolutions need is built and validated, and cuDNN has a plan for it: for each ResNet,
// stem, direction, precision and batch, deterministic or not, on three GPUs. No GPU is needed, and no plan is run.
#include <cudnn_frontend.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "described_gpu.h"
#include "layers/backend/cuda/conv/conv_graph.h"
#include "layers/backend/cuda/conv/plan_choice.h"
#include "layers/backend/observe/observing_backend.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/model.h"
#include "layers/models/models.h"
#include "tests/layers/backend/cuda/gpu.h"

using namespace convoy;

namespace {

struct Convolution {
  Conv2dSpec spec;
  Shape input;
};

/// Notes the convolutions that layers ask a layout for.
class ConvolutionsOf final : public ObservingBackend<ConvolutionsOf> {
 public:
  ConvolutionsOf(Backend& inner, std::vector<Convolution>& found) : ObservingBackend(inner), found_(found) {}
  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override {
    found_.push_back({spec, input});
    return inner().conv2d_layout(spec, input);
  }
  template <class Operation>
  void observe(const Operation& op) {
    inner().run(op);
  }

 private:
  std::vector<Convolution>& found_;
};

std::vector<Convolution> convolutions_of(std::vector<Unit> units, const Shape& input) {
  std::vector<Convolution> found;
  OnednnBackend cpu(1, DType::kF32);
  ConvolutionsOf backend(cpu, found);
  static_cast<void>(describe_units(backend, std::move(units), input));
  return found;
}

/// Of all ResNets, at the image sizes that their stems are for.
std::vector<Convolution> resnet_convolutions(std::int64_t batch) {
  std::vector<Convolution> all;
  for (const int depth : {18, 34, 50, 101, 152}) {
    for (const auto& [stem, size] : {std::pair{Stem::kImagenet, 224}, {Stem::kSmall, 32}}) {
      const auto found = convolutions_of(resnet_model(depth, stem, 1000), {batch, 3, size, size});
      all.insert(all.end(), found.begin(), found.end());
    }
  }
  return all;
}

/// The plans of training with these convolutions, each once.
std::set<ConvPlanKey> keys_of(const std::vector<Convolution>& convolutions, DType type) {
  std::set<ConvPlanKey> keys;
  for (const auto& [spec, input] : convolutions) {
    for (const auto direction :
         {ConvDirection::kForward, ConvDirection::kBackwardInput, ConvDirection::kBackwardWeight}) {
      keys.insert(conv_plan_key(direction, spec, input, type));
    }
  }
  return keys;
}

/// What FusionRules lets a convolution be fused with in training.
std::vector<ConvFusion> fusions_of(ConvDirection direction, const ConvPlanKey& key) {
  const bool padded = key.in_channels % 8 != 0, normalised_input = key.type == DType::kF16 && !padded;
  std::vector<ConvFusion> all;
  switch (direction) {
    case ConvDirection::kForward:
      all.push_back({.statistics = true});
      if (normalised_input) all.push_back({.prologue = true, .statistics = true});
      break;
    case ConvDirection::kBackwardInput:
      if (padded) break;
      all.push_back({.reductions = true, .mask = ReluMask::kRecomputed});                // within a block
      all.push_back({.residual = true, .reductions = true, .mask = ReluMask::kOutput});  // between blocks
      break;
    case ConvDirection::kBackwardWeight:
      if (normalised_input) all.push_back({.prologue = true});
      break;
  }
  return all;
}

/// The plans of training with fused batch norms, each once.
std::set<ConvPlanKey> fused_keys_of(const std::vector<Convolution>& convolutions, DType type) {
  std::set<ConvPlanKey> keys;
  for (const auto& [spec, input] : convolutions) {
    for (const auto direction :
         {ConvDirection::kForward, ConvDirection::kBackwardInput, ConvDirection::kBackwardWeight}) {
      const ConvPlanKey key = conv_plan_key(direction, spec, input, type);
      for (const ConvFusion& fusion : fusions_of(direction, key)) {
        keys.insert(conv_plan_key(direction, spec, input, type, fusion));
      }
    }
  }
  return keys;
}

/// Why there is no plan, or nothing.
std::string refusal(const ConvPlanKey& key, EngineRules rules, const DescribedGpu& gpu,
                    const std::shared_ptr<const cudnn_frontend::DeviceProperties>& properties) {
  cudnn_frontend::graph::Graph graph;
  graph.set_device_properties(properties).set_sm_version(gpu.compute_capability);
  if (auto error = propose_plans(key, rules, nullptr, graph); error.is_bad()) return error.get_message();
  if (auto error = graph.check_support(); error.is_bad()) return error.get_message();
  return "";
}

void check_all(const DescribedGpu& gpu, const std::vector<Convolution>& convolutions, bool deterministic) {
  const auto properties = device_properties(gpu);
  for (const Precision& precision : kPrecisions) {
    int plans = 0;
    for (const ConvPlanKey& key : keys_of(convolutions, precision.compute)) {
      const std::string reason = refusal(key, {precision.tf32, deterministic}, gpu, properties);
      CHECK_MESSAGE(reason.empty(), fmt::format("{}, {}{}: {}: {}", gpu.name, precision.name,
                                                deterministic ? ", deterministic" : "", key.str(), reason));
      ++plans;
    }
    MESSAGE(fmt::format("{}, {}{}: {} convolutions", gpu.name, precision.name, deterministic ? ", deterministic" : "",
                        plans));
  }
}

}  // namespace

TEST_CASE("cuDNN has a plan for every convolution of every ResNet") {
  for (const DescribedGpu& gpu : {kA100, kH100, kH200}) {
    for (const std::int64_t batch : {1, 32, 256}) check_all(gpu, resnet_convolutions(batch), false);
  }
}

TEST_CASE("and a deterministic one") {
  for (const DescribedGpu& gpu : {kA100, kH100, kH200}) {
    for (const std::int64_t batch : {1, 256}) check_all(gpu, resnet_convolutions(batch), true);
  }
}

static void check_fused(const DescribedGpu& gpu, std::size_t step) {
  const auto properties = device_properties(gpu);
  const auto convolutions = convolutions_of(resnet_model(50, Stem::kImagenet, 1000), {256, 3, 224, 224});
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const std::set<ConvPlanKey> keys = fused_keys_of(convolutions, type);
    std::size_t index = 0, plans = 0;
    for (const ConvPlanKey& key : keys) {
      if (index++ % step != 0) continue;
      const std::string reason = refusal(key, {}, gpu, properties);
      CHECK_MESSAGE(reason.empty(), fmt::format("{}: {}: {}", gpu.name, key.str(), reason));
      ++plans;
    }
    MESSAGE(fmt::format("{}, {}: {} of {} fused convolutions", gpu.name, dtype_name(type), plans, keys.size()));
  }
}

// cuDNN takes half a second for each: these are a sample.
TEST_CASE("cuDNN has a plan for convolutions of ResNet-50 with the batch norms around them") { check_fused(kH200, 8); }

TEST_CASE("and for all of them" * doctest::skip()) {
  for (const DescribedGpu& gpu : {kH100, kH200}) check_fused(gpu, 1);
}

TEST_CASE("a convolution that cannot be is refused") {
  const auto properties = device_properties(kH200);
  const ConvPlanKey good = conv_plan_key(ConvDirection::kForward, {64, 64, 7}, {8, 64, 7, 7}, DType::kBF16);
  CHECK(refusal(good, {}, kH200, properties).empty());
  ConvPlanKey larger_than_the_image = good;
  larger_than_the_image.height = 5;
  CHECK_FALSE(refusal(larger_than_the_image, {}, kH200, properties).empty());
  ConvPlanKey uneven_groups = good;
  uneven_groups.groups = 3;
  CHECK_FALSE(refusal(uneven_groups, {}, kH200, properties).empty());
  ConvPlanKey normalised =
      conv_plan_key(ConvDirection::kBackwardWeight, {64, 64, 3, 1, 1}, {8, 64, 7, 7}, DType::kBF16);
  normalised.fusion.prologue = true;  // why bfloat16 stores what it normalises
  CHECK_FALSE(refusal(normalised, {}, kH200, properties).empty());
}
