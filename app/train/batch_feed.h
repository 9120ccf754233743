// SPDX-License-Identifier: Apache-2.0
//
// The batches of a run's steps, in order. On devices that compute asynchronously the next batch is fetched and copied
// to the device during a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "app/build/build_run.h"
#include "io/data/loader.h"
#include "layers/cpu/openmp_waits.h"
#include "parallel/engine/step_runner.h"

namespace convoy {

class BatchFeed {
 public:
  /// steps: the largest number of batches that will be requested. `runner` must outlive this.
  BatchFeed(std::unique_ptr<Loader> loader, StepRunner& runner, std::int64_t steps)
      : loader_(std::move(loader)), runner_(runner), left_(steps) {}

  /// The next step's batch; its host memory may be reused once the step has started.
  LoaderStep next() {
    follow_openmp_waits();
    --left_;
    if (ahead_) return *std::exchange(ahead_, std::nullopt);
    return loader_->next();
  }

  /// Passed to train_step(), which calls it during the step.
  void fetch_ahead() {
    if (left_ <= 0) return;
    ahead_ = loader_->next();
    runner_.preload(ahead_->microbatches);
  }

 private:
  std::unique_ptr<Loader> loader_;
  StepRunner& runner_;
  std::int64_t left_;
  std::optional<LoaderStep> ahead_;
};

/// From the start of the data, full batches only, so that every step has the same size. For timing.
inline std::unique_ptr<Loader> whole_batch_loader(const Run& run) {
  LoaderOptions options = training_loader(run);
  options.drop_last = true;
  const Sampler sampler = training_sampler(*run.train, run.config.data, run.config.run.seed);
  return std::make_unique<Loader>(*run.train, sampler, options);
}

inline BatchFeed whole_batches(const Run& run, std::int64_t steps) {
  return {whole_batch_loader(run), *run.runner, steps};
}

}  // namespace convoy
