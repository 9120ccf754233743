// SPDX-License-Identifier: Apache-2.0
//
// Data sets that change what another one reads: float samples that are checked and normalised, labels by class name.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/data/augmented_dataset.h"
#include "io/data/float_dataset.h"
#include "io/data/matched_classes.h"
#include "layers/base/option_error.h"

using namespace convoy;

namespace {

struct Floats final : Dataset {
  Shape shape{3};
  std::vector<std::vector<float>> inputs;
  std::vector<float> targets;  // one each; empty: labels
  std::vector<std::int64_t> labels;
  std::vector<std::string> names;

  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(inputs.size()); }
  [[nodiscard]] Shape sample_shape() const override { return shape; }
  [[nodiscard]] DType input_dtype() const override { return DType::kF32; }
  [[nodiscard]] std::int64_t target_size() const override { return targets.empty() ? 0 : 1; }
  [[nodiscard]] std::int64_t classes() const override {
    return labels.empty() ? 0 : *std::max_element(labels.begin(), labels.end()) + 1;
  }
  [[nodiscard]] std::vector<std::string> class_names() const override { return names; }
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override {
    const auto i = static_cast<std::size_t>(sample.index);
    if (input != nullptr) std::copy(inputs[i].begin(), inputs[i].end(), static_cast<float*>(input));
    if (label != nullptr && !labels.empty()) *label = labels[i];
    if (target != nullptr && !targets.empty()) *target = targets[i];
  }
};

std::unique_ptr<Floats> samples(std::vector<std::vector<float>> inputs) {
  auto data = std::make_unique<Floats>();
  data->inputs = std::move(inputs);
  data->targets.assign(data->inputs.size(), 1.0F);
  return data;
}

std::vector<float> read_inputs(const Dataset& data, std::int64_t index) {
  std::vector<float> inputs(static_cast<std::size_t>(data.sample_shape().size()));
  data.read(index, inputs.data(), nullptr, nullptr);
  return inputs;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("float images are moved and mirrored as images of bytes are") {
  struct Numbered final : Dataset {
    DType dtype;
    explicit Numbered(DType type) : dtype(type) {}
    [[nodiscard]] std::int64_t size() const override { return 3; }
    [[nodiscard]] Shape sample_shape() const override { return {5, 6, 7}; }
    [[nodiscard]] DType input_dtype() const override { return dtype; }
    [[nodiscard]] std::int64_t target_size() const override { return 0; }
    [[nodiscard]] std::int64_t classes() const override { return 1; }
    [[nodiscard]] std::vector<std::string> class_names() const override { return {}; }
    void read(const SampleId& sample, void* input, std::int64_t*, float*) const override {
      for (int i = 0; i < 210; ++i) {
        const auto value = static_cast<std::uint8_t>(40 * sample.index + i % 200 + 1);
        if (dtype == DType::kU8) static_cast<std::uint8_t*>(input)[i] = value;
        if (dtype == DType::kF32) static_cast<float*>(input)[i] = value;
      }
    }
  };
  Augmentation augmentation;
  augmentation.crop = augmentation.flip = true;
  const AugmentedDataset bytes(std::make_unique<Numbered>(DType::kU8), augmentation, 7);
  const AugmentedDataset floats(std::make_unique<Numbered>(DType::kF32), augmentation, 7);
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    for (std::int64_t i = 0; i < 3; ++i) {
      std::vector<std::uint8_t> expected(210);
      std::vector<float> found(210);
      bytes.read({i, epoch}, expected.data(), nullptr, nullptr);
      floats.read({i, epoch}, found.data(), nullptr, nullptr);
      CHECK(std::equal(found.begin(), found.end(), expected.begin()));
    }
  }
}

TEST_CASE("float inputs are normalised by feature, by channel, or by one value for all") {
  const FloatDataset by_feature(samples({{1, 2, 3}}), {"f.h5", {1, 0, -1}, {2, 4, 8}});
  CHECK(read_inputs(by_feature, 0) == std::vector<float>{0, 0.5, 0.5});
  const FloatDataset by_one(samples({{1, 2, 3}}), {"f.h5", {1}, {2}});
  CHECK(read_inputs(by_one, 0) == std::vector<float>{0, 0.5, 1});
  auto images = samples({{1, 10, 2, 20}});  // [C, H, W] = [2, 1, 2], channels-last
  images->shape = {2, 1, 2};
  const FloatDataset by_channel(std::move(images), {"f.h5", {1, 10}, {1, 5}});
  CHECK(read_inputs(by_channel, 0) == std::vector<float>{0, 0, 1, 2});
  const FloatDataset plain(samples({{1, 2, 3}}), {"f.h5", {0}, {1}});
  CHECK(read_inputs(plain, 0) == std::vector<float>{1, 2, 3});
}

TEST_CASE("another number of means is an error of its key") {
  CHECK_THROWS_WITH_AS(FloatDataset(samples({{1, 2, 3}}), {"f.h5", {0, 1}, {1}}),
                       "data.mean: 2 values for the 3 features of f.h5 (give one for all, or one each)", OptionError);
  CHECK_THROWS_WITH_AS(FloatDataset(samples({{1, 2, 3}}), {"f.h5", {0}, {1, 1, 1, 1}}),
                       "data.std: 4 values for the 3 features of f.h5 (give one for all, or one each)", OptionError);
}

TEST_CASE("the first value that is not finite is named") {
  const FloatDataset data(samples({{1, 2, 3}, {1, 2, kNan}, {-kInfinity, kNan, 0}}), {"f.h5:/train"});
  CHECK_NOTHROW(read_inputs(data, 0));
  CHECK_THROWS_WITH_AS(read_inputs(data, 1),
                       "f.h5:/train: sample 1: inputs [2] is nan (repair the data, or allow it with "
                       "data.allow_nonfinite = true)",
                       Error);
  CHECK_THROWS_WITH_AS(read_inputs(data, 2), doctest::Contains("sample 2: inputs [0] is -inf"), Error);
  auto wrong = samples({{1, 2, 3}});
  wrong->targets[0] = kInfinity;
  const FloatDataset targets(std::move(wrong), {"f.h5"});
  float target = 0;
  CHECK_THROWS_WITH_AS(targets.read(0, nullptr, nullptr, &target), doctest::Contains("sample 0: targets [0] is inf"),
                       Error);
}

TEST_CASE("values that are allowed are noted once, and the first samples only") {
  std::vector<std::vector<float>> inputs(30, {kNan, 0, 0});
  const FloatDataset data(samples(std::move(inputs)), {"f.h5", {0}, {1}, true});
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t i = 0; i < 30; ++i) CHECK(std::isnan(read_inputs(data, i)[0]));
  }
  const auto noted = data.broken()->take();
  CHECK(noted.size() == 20);
  CHECK(noted.front().text == "f.h5: sample 0: inputs [0] is nan");
}

TEST_CASE("labels are matched by class name") {
  const auto labelled = [](std::vector<std::string> names, std::vector<std::int64_t> labels) {
    auto data = samples(std::vector<std::vector<float>>(labels.size(), {0, 0, 0}));
    data->targets.clear();
    data->labels = std::move(labels);
    data->names = std::move(names);
    return data;
  };
  const auto labels_of = [](const Dataset& data) {
    std::vector<std::int64_t> labels(static_cast<std::size_t>(data.size()));
    for (std::int64_t i = 0; i < data.size(); ++i) data.read(i, nullptr, &labels[static_cast<std::size_t>(i)], nullptr);
    return labels;
  };
  const std::vector<std::string> training{"ant", "bee", "cat"};
  MatchedClasses same = match_classes(labelled(training, {2, 0}), "v", training);
  CHECK(labels_of(*same.data) == std::vector<std::int64_t>{2, 0});
  CHECK(same.note.empty());
  MatchedClasses some = match_classes(labelled({"cat", "bee"}, {0, 1, 0}), "v", training);
  CHECK(labels_of(*some.data) == std::vector<std::int64_t>{2, 1, 2});
  CHECK(some.data->classes() == 3);
  CHECK(some.data->class_names() == training);
  CHECK(some.note == "note: v has 2 of the 3 classes of the training data, without ant");
  CHECK(labels_of(*match_classes(labelled({}, {1}), "v", training).data) == std::vector<std::int64_t>{1});
  CHECK(labels_of(*match_classes(labelled({"bee"}, {0}), "v", {}).data) == std::vector<std::int64_t>{0});
  CHECK_THROWS_WITH_AS((void)match_classes(labelled({"ant", "dog"}, {0}), "v", training),
                       "v has classes that the training data has not: dog (its classes: ant, dog; those of the "
                       "training data: ant, bee, cat)",
                       Error);
  CHECK_THROWS_WITH_AS((void)match_classes(labelled({"bee"}, {1}), "v", training),
                       "v has labels up to 1, but names only 1 classes (repair its class_names)", Error);
}
