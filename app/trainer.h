// SPDX-License-Identifier: Apache-2.0
//
// The training loop: counts steps, stops, evaluates, saves and reports. Every rank runs it; rank 0 alone writes files.
// Invariant: all ranks decide together whether a step is the last.
#pragma once

#include <memory>
#include <string>

#include "app/batch_feed.h"
#include "app/build_run.h"
#include "app/evaluate.h"
#include "app/progress.h"
#include "app/run_state.h"
#include "app/stop.h"
#include "io/checkpoint_writer.h"
#include "io/metrics_log.h"
#include "io/tensorboard.h"

namespace convoy {

/// Makes the run's folder and writes the resolved config into it (rank 0). Before anything is looked for there.
void prepare_run_folder(Run& run);

class Trainer {
 public:
  /// Opens the run's files; state says where to go on from.
  Trainer(Run& run, const RunState& state);
  /// Trains to the end, or until it is told to stop. Returns why it ended. Throws a collective Error when the loss is
  /// not finite.
  ExitCode train();

 private:
  enum class Stop { kNo, kSignal, kMaxTime };

  void open_files();
  /// One step; returns what the ranks have agreed on about stopping.
  Stop step();
  void report_step(const LoaderStep& batch, double loss, double lr, double seconds);
  void after_step(bool end_of_epoch);
  void evaluate_now();
  void save();
  void drain_checkpoints();
  void finish(Stop stop);
  [[nodiscard]] std::string last_checkpoint() const;

  Run& run_;
  RunState state_;
  StopRequest stop_;
  std::unique_ptr<BatchFeed> feed_;
  std::int64_t saved_step_ = -1;
  std::int64_t evaluated_step_ = -1;
  // rank 0 only
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<TensorboardWriter> tensorboard_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::unique_ptr<Progress> progress_;
};

}  // namespace convoy
