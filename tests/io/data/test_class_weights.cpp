// SPDX-License-Identifier: Apache-2.0
//
// The loader's scale of class weights: samples over the sum of the weights of the labels in the global batch, the same
// for every replica, with every order of samples.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/data/loader.h"
#include "io/data/synthetic.h"

using namespace convoy;

namespace {

constexpr std::int64_t kSize = 103, kClasses = 7;

std::vector<std::int64_t> labels_of(const Dataset& data) {
  std::vector<std::int64_t> labels(static_cast<std::size_t>(data.size()));
  for (std::size_t i = 0; i < labels.size(); ++i) data.read(static_cast<std::int64_t>(i), nullptr, &labels[i], nullptr);
  return labels;
}

LoaderOptions weighted_options() {
  LoaderOptions options;
  options.global_batch = 24;
  options.drop_last = false;
  options.class_weights = {0.25, 0.5, 1, 2, 3, 5, 7};  // sums of these are exact, in any order
  options.threads = 3;
  return options;
}

}  // namespace

TEST_CASE("every replica finds the same scale of class weights") {
  const SyntheticDataset data(kSize, {2}, kClasses, 0, 5);
  const std::vector<std::int64_t> labels = labels_of(data);
  LoaderOptions options = weighted_options();
  for (const Sampler& sampler : {Sampler(kSize, 11, true), Sampler(kSize, 11, true, 3), Sampler(labels, 11)}) {
    for (const int replicas : {1, 3}) {
      for (int replica = 0; replica < replicas; ++replica) {
        options.replicas = replicas;
        options.replica = replica;
        options.microbatches = replicas == 1 ? 2 : 1;
        Loader loader(data, sampler, options);
        for (int n = 0; n < 7; ++n) {  // the fifth is the rest of the epoch
          const LoaderStep& step = loader.next();
          double sum = 0;
          for (std::int64_t i = 0; i < step.global_samples; ++i) {
            const auto sample = static_cast<std::size_t>(sampler.index(step.epoch, step.first_position + i));
            sum += options.class_weights[static_cast<std::size_t>(labels[sample])];
          }
          for (const Batch& batch : step.microbatches) {
            REQUIRE(batch.class_weights);
            CHECK(batch.class_weights->scale == static_cast<double>(step.global_samples) / sum);
            CHECK(std::equal(options.class_weights.begin(), options.class_weights.end(),
                             batch.class_weights->of_class.begin(), batch.class_weights->of_class.end()));
          }
        }
      }
    }
  }
}

TEST_CASE("class weights of mixed labels, of no labels, and of labels without one") {
  const SyntheticDataset images(kSize, {1, 3, 3}, kClasses, 0, 5);
  const Sampler sampler(kSize, 11, true);
  LoaderOptions options = weighted_options();
  SUBCASE("mixed labels are not weighted in the mean") {
    options.augmentation.mixup = true;
    CHECK(Loader(images, sampler, options).next().microbatches.front().class_weights->scale == 1);
  }
  SUBCASE("a rank that needs no labels") {
    options.targets = false;
    CHECK(!Loader(images, sampler, options).next().microbatches.front().class_weights);
  }
  SUBCASE("a label without a weight") {
    options.class_weights.pop_back();
    CHECK_THROWS_WITH_AS((void)Loader(images, sampler, options).next(),
                         doctest::Contains("has the label 6, and there are weights of 6 classes"), Error);
  }
}
