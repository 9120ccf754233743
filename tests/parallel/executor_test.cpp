// SPDX-License-Identifier: Apache-2.0
//
// One stage without other ranks: a step that is recorded, or whose loss is scaled, gives the same numbers as a plain
// one, also when the last batch is smaller.
#include "parallel/executor.h"

#include <doctest/doctest.h>

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

Trained train(int microbatches, const StepRecording::Record& record, bool scaled) {
  OnednnBackend backend(1, DType::kF32);
  const std::int64_t part = kBatch / microbatches;
  Model model(backend, toy_model(5), {part, 10}, 42);
  const auto optimizer = make_optimizer(OptimizerSpec(), backend, model.parameters());
  LossScaler scaler(scaled);
  Executor executor(model, *optimizer, Loss{Loss::Kind::kMse}, {}, make_schedule("gpipe", 1, microbatches, 1), {}, {},
                    scaler, record);
  Trained result;
  std::vector<float> inputs(static_cast<std::size_t>(kBatch) * 10), targets(static_cast<std::size_t>(kBatch) * 5);
  for (std::int64_t step = 0; step < 8; ++step) {
    const auto key = static_cast<std::uint64_t>(step);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(random_normal(key, i));
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<float>(random_normal(key + 100, i));
    const std::int64_t samples = step % 4 == 3 ? part - 1 : part;  // the end of an epoch
    std::vector<Batch> batches(static_cast<std::size_t>(microbatches));
    for (std::int64_t m = 0; m < microbatches; ++m) {
      Batch& batch = batches[static_cast<std::size_t>(m)];
      batch.samples = samples;
      batch.input_shape = {samples, 10};
      batch.input_dtype = DType::kF32;
      batch.inputs = inputs.data() + m * part * 10;
      batch.target_size = 5;
      batch.targets = targets.data() + m * part * 5;
    }
    result.losses.push_back(executor.train_step(batches, samples * microbatches, 0.05, step, {}).loss);
  }
  result.parameters.resize(static_cast<std::size_t>(model.parameters().values().size()));
  backend.copy_to_host(model.parameters().values(), result.parameters.data());
  result.scale = scaler.scale();
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
    const Trained scaled = train(microbatches, {}, true);  // by a power of two: exact
    CHECK(scaled.losses == plain.losses);
    CHECK(scaled.parameters == plain.parameters);
    CHECK(scaled.scale == LossScaler::kStart);
  }
}

}  // namespace convoy
