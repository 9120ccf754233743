// SPDX-License-Identifier: Apache-2.0
//
// An evaluation that is told to stop: counted in batches after the signal, not in seconds.
#include "app/train/evaluate.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "app/build/read_config.h"
#include "app/train/stop.h"
#include "io/data/datasets.h"
#include "parallel/comm/rehearsal_communicator.h"

using namespace convoy;

namespace {

constexpr int kBatches = 6;

// Counts the batches that it is given; during one of them this process gets a signal.
class CountingRunner final : public StepRunner {
 public:
  CountingRunner(const StopRequest& stop, int signalled_batch) : stop_(stop), signalled_batch_(signalled_batch) {}
  LossTotals train_step(std::span<const Batch> /*microbatches*/, std::int64_t /*global_samples*/, double /*lr*/,
                        std::int64_t /*update*/, const Meanwhile& /*meanwhile*/) override {
    return {};
  }
  void predict(std::span<const Batch> /*microbatches*/, const TakeOutputs& /*take*/) override {}
  LossTotals evaluate(std::span<const Batch> microbatches, const TakeOutputs& /*take*/) override {
    if (++batches == signalled_batch_) {
      ::kill(::getpid(), SIGUSR2);
      while (!stop_.signalled()) ::usleep(1000);
    }
    LossTotals totals;
    for (const Batch& batch : microbatches) totals.loss += static_cast<double>(batch.samples);
    return totals;
  }
  [[nodiscard]] const Phases& phases() const override { return phases_; }

  int batches = 0;

 private:
  const StopRequest& stop_;
  int signalled_batch_;
  Phases phases_;
};

struct Outcome {
  int batches = 0;
  StopReason stopped = StopReason::kNo;
  std::optional<EvalResult> result;
  std::vector<std::int64_t> done;
};

Outcome evaluated(int signalled_batch) {
  const StopRequest stop({"SIGUSR2"}, std::nullopt);
  Run run;
  run.config = parse_config(
      "[model]\nname = \"mlp\"\nclasses = 10\n[data]\nkind = \"synthetic\"\nimage_size = 4\nsamples = 24\n"
      "[train]\nsteps = 3\nglobal_batch_size = 4\n",
      "test.toml", {}, InputFiles::kTrust);
  run.layout = plan_layout(run.config, 1);
  run.communicator = std::make_unique<RehearsalCommunicator>(0, 1);
  run.device.loader_threads = 1;
  auto runner = std::make_unique<CountingRunner>(stop, signalled_batch);
  const CountingRunner& counted = *runner;
  run.runner = std::move(runner);
  const auto data = open_dataset({run.config.data, "", true, run.config.run.seed, false, 10});
  Outcome outcome;
  outcome.result = evaluate(run, *data, [&](std::int64_t done, std::int64_t batches) {
    CHECK(batches == kBatches);
    outcome.done.push_back(done);
    outcome.stopped = agree_on_stop(*run.communicator, stop);
    return outcome.stopped == StopReason::kNo;
  });
  outcome.batches = counted.batches;
  return outcome;
}

}  // namespace

TEST_CASE("an evaluation without a stop sees every batch") {
  const Outcome outcome = evaluated(0);
  CHECK(outcome.batches == kBatches);
  CHECK(outcome.done == std::vector<std::int64_t>{1, 2, 3, 4, 5});
  REQUIRE(outcome.result);
  CHECK(outcome.result->samples == 24);
  CHECK(outcome.result->loss == 1);
}

TEST_CASE("a signal during a batch of an evaluation: no batch comes after it") {
  for (const int batch : {1, 3}) {
    const Outcome outcome = evaluated(batch);
    CHECK(outcome.batches == batch);
    CHECK(outcome.stopped == StopReason::kSignal);
    CHECK_FALSE(outcome.result);
  }
}

TEST_CASE("a signal during the last batch: the evaluation is complete") {
  const Outcome outcome = evaluated(kBatches);
  CHECK(outcome.batches == kBatches);
  CHECK(outcome.result);
}
