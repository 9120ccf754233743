// SPDX-License-Identifier: Apache-2.0
//
// Steps that are computed twice: they leave the bits of plain steps, and a bit that was flipped on one rank is found
// and named on all, in data, pipeline and hybrid layouts of as many ranks as there are.
#include "parallel/engine/replay.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_name.h"
#include "layers/base/random.h"
#include "layers/models/models.h"
#include "parallel/engine/executor.h"
#include "tests/layers/backend/spoiled_backend.h"
#include "tests/parallel/mpi_fixture.h"

namespace convoy {

namespace {

constexpr std::int64_t kPart = 6, kInputs = 10, kOutputs = 5, kSteps = 6;
constexpr double kClipNorm = 0.01;  // below the norm of every step
constexpr int kUnits = 4, kEvery = 2, kMicrobatches = 2;

// Linear layers and dropout, in units that can be cut anywhere.
std::vector<Unit> network() {
  std::vector<LayerOptions> layers(kUnits);
  const auto linear = [](std::int64_t outputs) {
    LinearOptions options;
    options.out_features = outputs;
    return options;
  };
  layers[0].layer = linear(16);
  layers[1].layer = DropoutOptions{};
  layers[2].layer = linear(12);
  layers[3].layer = linear(kOutputs);
  for (int i = 0; i < kUnits; ++i) layers[static_cast<std::size_t>(i)].name = fmt::format("layer{}", i);
  return sequential_model(layers);
}

struct Layout {
  int replicas, stages;
};

std::vector<Layout> layouts(int ranks) {
  if (ranks == 1) return {{1, 1}};
  if (ranks == 2) return {{2, 1}, {1, 2}};
  return {{ranks, 1}, {1, ranks}, {ranks / 2, 2}};
}

// Everything of one rank. alone: every rank by itself is the one rank of the layout.
class Job {
 public:
  Job(const Layout& layout, int every, bool alone = false)
      : stage_(alone ? 0 : test_world().ranks().rank() % layout.stages),
        replica_(alone ? 0 : test_world().ranks().rank() / layout.stages),
        layout_(layout),
        all_(test_world().ranks().communicator(kTestTimeout, "all")),
        stages_(test_world().ranks().split(replica_, stage_, kTestTimeout, "stages")),
        replicas_(test_world().ranks().split(stage_, replica_, kTestTimeout, "replicas")),
        model(backend, network(), {kPart, kInputs}, 7, nullptr,
              {{stage_ * kUnits / layout.stages, (stage_ + 1) * kUnits / layout.stages}}),
        optimizer(make_optimizer(AdamwOptions{}, backend, model.parameters())),
        average(0.9, backend, model.parameters()),
        replay(every, model, *optimizer, *all_, stage_),
        executor_(model, *optimizer, Loss{Loss::Kind::kMse}, {}, make_schedule("1f1b", layout.stages, kMicrobatches, 1),
                  {stage_, layout.stages > 1 ? stages_.get() : nullptr, alone ? nullptr : replicas_.get()},
                  {1e-4, 2e-4}, scaler_, {}, &replay, {kClipNorm, &average}) {}

  double step(std::int64_t update) {
    std::array<Batch, kMicrobatches> batches;
    const std::int64_t first = (replica_ * kMicrobatches) * kPart;
    std::vector<float> inputs(kMicrobatches * kPart * kInputs), targets(kMicrobatches * kPart * kOutputs);
    const auto key = static_cast<std::uint64_t>(100 * update + replica_);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(random_normal(key, i));
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<float>(random_normal(key + 50, i));
    for (int m = 0; m < kMicrobatches; ++m) {
      Batch& batch = batches[static_cast<std::size_t>(m)];
      batch.samples = kPart;
      batch.first_position = first + m * kPart;
      batch.input_shape = {kPart, kInputs};
      batch.input_dtype = DType::kF32;
      batch.inputs = inputs.data() + m * kPart * kInputs;
      batch.target_size = kOutputs;
      batch.targets = targets.data() + m * kPart * kOutputs;
    }
    const LossTotals totals = executor_.train_step(batches, kPart * kMicrobatches * layout_.replicas, 0.01, update, {});
    gradient_norm = totals.gradient_norm;
    return totals.loss;
  }

  [[nodiscard]] std::vector<float> state() {
    std::vector<float> result;
    const auto add = [&](const Tensor& x) {
      if (x.size() > 0) result.insert(result.end(), x.data<float>(), x.data<float>() + x.size());
    };
    add(model.parameters().values());
    add(model.parameters().running());
    for (const auto& [name, slot] : optimizer->slots()) add(slot);
    add(average.weights());
    add(average.statistics());
    return result;
  }

  [[nodiscard]] int rank() const { return all_->rank(); }
  double gradient_norm = 0;  // of the last step

 private:
  int stage_, replica_;
  Layout layout_;
  std::unique_ptr<Communicator> all_, stages_, replicas_;
  OnednnBackend device_{1, DType::kF32};
  LossScaler scaler_;

 public:
  SpoiledBackend backend{device_};
  Model model;
  std::unique_ptr<Optimizer> optimizer;
  WeightAverage average;
  Replay replay;

 private:
  Executor executor_;
};

/// What all ranks throw when `flip` damages one of them, before step 4 (update 3) begins; `culprit` is its rank.
template <class Flip>
std::string found(const Layout& layout, int culprit, const Flip& flip) {
  Job job(layout, kEvery);
  for (std::int64_t update = 0; update < 3; ++update) static_cast<void>(job.step(update));
  if (job.rank() == culprit) flip(job);
  return error_of([&] { static_cast<void>(job.step(3)); });
}

std::string where(int rank) { return fmt::format("rank {} on {}", rank, host_name()); }

void flip_bit(const Tensor& x) { static_cast<std::uint8_t*>(x.raw())[1] ^= 0x10; }

}  // namespace

TEST_CASE_FIXTURE(MpiFixture, "steps computed twice leave the bits of steps computed once") {
  for (const Layout& layout : layouts(size)) {
    Job plain(layout, 0), often(layout, 1), twice(layout, kEvery);
    for (std::int64_t update = 0; update < kSteps; ++update) {
      const double loss = plain.step(update);
      CHECK(often.step(update) == loss);
      CHECK(twice.step(update) == loss);
      if (layout.stages == 1) CHECK(loss > 0);
    }
    CHECK(often.state() == plain.state());
    CHECK(twice.state() == plain.state());
    twice.replay.check_state(kSteps);
  }
}

TEST_CASE_FIXTURE(MpiFixture, "a bit flipped in a gradient is found at the next replay and named with its rank") {
  for (const Layout& layout : layouts(size)) {
    for (int culprit = 0; culprit < size; ++culprit) {
      if (layout.stages == kUnits && culprit % layout.stages == 1) continue;  // dropout alone: it has none
      const std::string error = found(layout, culprit, [](Job& job) { job.backend.flip("linear_backward_weight", 1); });
      CAPTURE(error);
      CHECK(contains(error, "step 4: computed twice, " + where(culprit) + " has got other bits"));
      CHECK(contains(error, "first in the gradient of layer"));
    }
  }
}

TEST_CASE_FIXTURE(MpiFixture, "a bit flipped in an activation is found at the next replay and named with its rank") {
  for (const Layout& layout : layouts(size)) {
    for (int culprit = 0; culprit < size; ++culprit) {
      const bool drops = layout.stages == kUnits && culprit % layout.stages == 1;
      const std::string error =
          found(layout, culprit, [&](Job& job) { job.backend.flip(drops ? "dropout" : "linear_forward", 2, 3); });
      CAPTURE(error);
      CHECK(contains(error, "step 4: computed twice, " + where(culprit) + " has got other bits"));
      CHECK(contains(error, "first in the output of layer"));
    }
  }
}

TEST_CASE_FIXTURE(MpiFixture, "a bit flipped in a weight during a step, or between steps, is found and named") {
  for (const Layout& layout : layouts(size)) {
    for (int culprit = 0; culprit < size; ++culprit) {
      if (layout.stages == kUnits && culprit % layout.stages == 1) continue;
      const std::string during =
          found(layout, culprit, [](Job& job) { job.backend.flip("linear_forward", 2, 0, "weight"); });
      CAPTURE(during);
      CHECK(contains(during, "step 4: " + where(culprit) + ": bits of layer"));
      CHECK(contains(during, ".weight have changed in memory since its update"));
      const std::string between = found(layout, culprit, [](Job& job) { flip_bit(job.model.parameters().values()); });
      CAPTURE(between);
      CHECK(contains(between, "step 4: " + where(culprit) + ": bits of layer"));
      CHECK(contains(between, "have changed in memory since its update"));
    }
  }
}

TEST_CASE_FIXTURE(MpiFixture, "a bit flipped in an update is found, in the second of the two as well") {
  for (const Layout& layout : layouts(size)) {
    for (const std::int64_t call : {1, 2}) {
      const std::string error =
          found(layout, 0, [&](Job& job) { job.backend.flip("adamw_update", call, 0, "values"); });
      CAPTURE(error);
      CHECK(contains(error,
                     "step 4: computed twice, " + where(0) + " has got other bits the second time, first in the "));
      CHECK(contains(error, "update of layer"));
    }
  }
}

TEST_CASE_FIXTURE(MpiFixture, "a bit flipped in clipping or in the average of the weights is found") {
  for (const Layout& layout : layouts(size)) {
    const auto text = [&](const char* operation, const char* output) {
      return found(layout, 0, [&](Job& job) { job.backend.flip(operation, 1, 0, output); });
    };
    for (const std::string& error : {text("squared_norms", "squares"), text("scale_by", "x"), text("lerp", "y")}) {
      CAPTURE(error);
      CHECK(contains(error, "step 4: computed twice, " + where(0) + " has got other bits the second time"));
    }
    CHECK(contains(text("squared_norms", "squares"), "first in the norms of the gradients"));
    CHECK(contains(text("scale_by", "x"), "first in the clipped gradient of layer"));
    CHECK(contains(text("lerp", "y"), "first in the average of layer"));
  }
}

TEST_CASE_FIXTURE(MpiFixture, "the norm of the gradients has the same bits in every layout of stages") {
  std::vector<double> norms;
  for (const Layout& layout : layouts(size)) {
    if (layout.replicas > 1) continue;
    Job job(layout, 0);
    for (std::int64_t update = 0; update < 3; ++update) {
      static_cast<void>(job.step(update));
      norms.push_back(job.gradient_norm);
    }
  }
  // Of one rank, on every rank: the same layers on the same data.
  Job alone({1, 1}, 0, true);
  for (std::size_t update = 0; update < norms.size(); ++update) {
    static_cast<void>(alone.step(static_cast<std::int64_t>(update)));
    CHECK(norms[update] == alone.gradient_norm);
    CHECK(norms[update] > kClipNorm);
  }
}

TEST_CASE_FIXTURE(MpiFixture,
                  "replicas that have drifted apart are found at the next replay, and before a checkpoint") {
  if (size == 1) return;
  const auto drifted = [&](Job& job) {
    static_cast<void>(job.step(0));
    if (job.rank() == size - 1) flip_bit(job.model.parameters().values());  // before a step that is not replayed
  };
  const auto names_ranks = [&](const std::string& error) {
    CAPTURE(error);
    if (size > 2) {
      CHECK(contains(error, where(size - 1) + " has other bits of layer"));
    } else {
      CHECK(contains(error, "the replicas have different bits of layer"));
      CHECK(contains(error, where(0) + ", " + where(1)));
    }
  };
  {
    Job job({size, 1}, 3);
    drifted(job);
    names_ranks(error_of([&] { job.replay.check_state(1); }));
  }
  Job job({size, 1}, 4);
  drifted(job);
  static_cast<void>(job.step(1));
  static_cast<void>(job.step(2));
  names_ranks(error_of([&] { static_cast<void>(job.step(3)); }));
}

}  // namespace convoy
