// SPDX-License-Identifier: Apache-2.0
//
// One stage without other ranks: a step that is recorded, or whose loss is scaled, gives the same numbers as a plain
// one, also when the last batch is smaller, and when images change their size.
#include "parallel/engine/executor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/random.h"
#include "layers/models/models.h"

namespace convoy {

namespace {

constexpr std::int64_t kBatch = 8;

// Replays by running the body again: what a step leaves to the host only once would be missed.
class Again final : public RecordedWork {
 public:
  explicit Again(std::function<void()> body) : body_(std::move(body)) {}
  void replay() override { body_(); }

 private:
  std::function<void()> body_;
};

struct Trained {
  std::vector<double> losses;
  std::vector<float> parameters;
  double scale = 0;
};

// The data of one step.
struct StepData {
  std::vector<float> inputs, targets;
  std::vector<Batch> batches;
};

StepData data_of(std::int64_t step, int microbatches) {
  const std::int64_t part = kBatch / microbatches, samples = step % 4 == 3 ? part - 1 : part;  // the end of an epoch
  const auto key = static_cast<std::uint64_t>(step);
  StepData data{std::vector<float>(static_cast<std::size_t>(kBatch) * 10),
                std::vector<float>(static_cast<std::size_t>(kBatch) * 5),
                std::vector<Batch>(static_cast<std::size_t>(microbatches))};
  for (std::size_t i = 0; i < data.inputs.size(); ++i) data.inputs[i] = static_cast<float>(random_normal(key, i));
  for (std::size_t i = 0; i < data.targets.size(); ++i) {
    data.targets[i] = static_cast<float>(random_normal(key + 100, i));
  }
  for (std::int64_t m = 0; m < microbatches; ++m) {
    Batch& batch = data.batches[static_cast<std::size_t>(m)];
    batch.samples = samples;
    batch.input_shape = {samples, 10};
    batch.input_dtype = DType::kF32;
    batch.inputs = data.inputs.data() + m * part * 10;
    batch.target_size = 5;
    batch.targets = data.targets.data() + m * part * 5;
  }
  return data;
}

// ahead: the data of a step is brought to the device during the step before, and is gone when that step ends.
Trained train(int microbatches, const StepRecording::Record& record, bool scaled, bool ahead = false) {
  OnednnBackend backend(1, DType::kF32);
  Model model(backend, toy_model(5), {kBatch / microbatches, 10}, 42);
  const auto optimizer = make_optimizer(OptimizerChoice(), backend, model.parameters());
  LossScaler scaler(scaled);
  Executor executor(model, *optimizer, Loss{Loss::Kind::kMse}, {}, make_schedule("gpipe", 1, microbatches, 1), {}, {},
                    scaler, record);
  const auto parameters = [&] {
    std::vector<float> values(static_cast<std::size_t>(model.parameters().values().size()));
    backend.copy_to_host(model.parameters().values(), values.data());
    return values;
  };
  Trained result;
  for (std::int64_t step = 0; step < 8; ++step) {
    StepData data = data_of(step, microbatches);
    const std::int64_t samples = data.batches.front().samples * microbatches;
    const std::vector<float> before = parameters();
    bool called = false;
    const auto meanwhile = [&] {
      called = true;
      CHECK(parameters() == before);  // the update may have to wait for the device
      executor.preload(data_of(step + 1, microbatches).batches);
    };
    if (ahead && step > 0) {
      data.inputs.assign(data.inputs.size(), -1.0F);
      data.targets.assign(data.targets.size(), -1.0F);
    }
    result.losses.push_back(
        executor.train_step(data.batches, samples, 0.05, step, ahead ? meanwhile : StepRunner::Meanwhile()).loss);
    CHECK(called == ahead);
  }
  result.parameters = parameters();
  result.scale = scaler.scale();
  return result;
}

struct Sized {
  std::vector<double> losses;
  std::vector<std::uint64_t> allocations;
  std::vector<std::size_t> bytes;
};

// What behaves by image size: convolutions, batch norm, a block with a shortcut, pooling.
std::vector<Unit> small_network() {
  return sequential_model({{"conv", Conv2dOptions{.out_channels = 8, .kernel_size = 3, .padding = 1, .bias = false}},
                           {"bn", BatchNorm2dOptions{}},
                           {"relu", ReluOptions{}},
                           {"block", BasicBlockOptions{.channels = 16, .stride = 2}},
                           {"pool", GlobalAvgPoolOptions{}},
                           {"fc", LinearOptions{.out_features = 10}}});
}

// A batch of images of each size.
Sized train_sizes(const std::vector<std::int64_t>& sizes, const StepRecording::Record& record) {
  OnednnBackend backend(1, DType::kF32);
  const std::int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  Model model(backend, small_network(), {kBatch, 3, largest, largest}, 42);
  const auto optimizer = make_optimizer(OptimizerChoice(), backend, model.parameters());
  LossScaler scaler(false);
  Executor executor(model, *optimizer, Loss{}, {{0.5F}, {0.25F}}, make_schedule("gpipe", 1, 1, 1), {}, {}, scaler,
                    record);
  Sized result;
  std::vector<std::uint8_t> images(static_cast<std::size_t>(kBatch * 3 * largest * largest));
  std::vector<std::int64_t> labels(static_cast<std::size_t>(kBatch));
  for (std::size_t step = 0; step < sizes.size(); ++step) {
    for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<std::uint8_t>(random_bits(step, i));
    for (std::size_t i = 0; i < labels.size(); ++i)
      labels[i] = static_cast<std::int64_t>(random_bits(step + 99, i) % 10);
    Batch batch;
    batch.samples = kBatch;
    batch.input_shape = {kBatch, 3, sizes[step], sizes[step]};
    batch.input_dtype = DType::kU8;
    batch.inputs = images.data();
    batch.labels = labels.data();
    result.losses.push_back(executor.train_step({&batch, 1}, kBatch, 0.01, static_cast<std::int64_t>(step), {}).loss);
    result.allocations.push_back(backend.pool().raw_allocations());
    result.bytes.push_back(backend.pool().bytes_held());
  }
  return result;
}

}  // namespace

TEST_CASE("recorded steps and scaled losses give the plain step's bits") {
  for (const int microbatches : {1, 4}) {
    const Trained plain = train(microbatches, {}, false);
    CHECK(plain.losses.back() < plain.losses.front());
    int recorded = 0;
    const auto record = [&](const std::function<void()>& body) {
      ++recorded;
      return std::make_unique<Again>(body);
    };
    const Trained replayed = train(microbatches, record, false);
    CHECK(recorded == 2);  // the whole batch and the smaller one
    CHECK(replayed.losses == plain.losses);
    CHECK(replayed.parameters == plain.parameters);
    for (const bool with_scale : {false, true}) {
      const Trained ahead = train(microbatches, record, with_scale, true);
      CHECK(ahead.losses == plain.losses);
      CHECK(ahead.parameters == plain.parameters);
    }
    const Trained scaled = train(microbatches, {}, true);  // by a power of two: exact
    CHECK(scaled.losses == plain.losses);
    CHECK(scaled.parameters == plain.parameters);
    CHECK(scaled.scale == LossScaler::kStart);
  }
}

TEST_CASE("a new size of images: its steps are recorded anew, steady ones allocate nothing, old memory is given back") {
  const std::vector<std::int64_t> sizes = {16, 16, 16, 48, 48, 48, 8, 8, 8};
  const Sized plain = train_sizes(sizes, {});
  for (const std::size_t first : {0, 3, 6}) {
    CHECK(plain.allocations[first] > (first > 0 ? plain.allocations[first - 1] : 0));
    CHECK(plain.allocations[first + 2] == plain.allocations[first]);
  }
  CHECK(plain.bytes[5] > plain.bytes[2]);
  CHECK(plain.bytes[8] < plain.bytes[2]);
  int recorded = 0;
  const auto record = [&](const std::function<void()>& body) {
    ++recorded;
    return std::make_unique<Again>(body);
  };
  CHECK(train_sizes(sizes, record).losses == plain.losses);
  CHECK(recorded == 3);
}

}  // namespace convoy
