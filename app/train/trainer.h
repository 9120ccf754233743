// SPDX-License-Identifier: Apache-2.0
//
// The training loop: steps, evaluations, checkpoints, reports and stops. Every rank runs it; only rank 0 writes files.
// Invariant: all ranks agree on whether a step is the last.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "app/build/run_state.h"
#include "app/train/batch_feed.h"
#include "app/train/health.h"
#include "app/train/run_report.h"
#include "app/train/stop.h"
#include "io/checkpoint/checkpoint_writer.h"

namespace convoy {

/// Creates the run folder and writes the resolved config into it (rank 0). Called before checkpoints are searched
/// there.
void prepare_run_folder(Run& run);

class Trainer {
 public:
  /// Opens the run's files. state: where to resume; stop: when to end early. Both must outlive this.
  Trainer(Run& run, const RunState& state, StopRequest& stop);
  /// Trains to the end, or until a stop is requested. Returns why it ended. Throws a collective Error when the loss is
  /// not finite.
  ExitCode train();

 private:
  enum class Stop { kNo, kSignal, kMaxTime };

  void open_files();
  /// One step; returns what the ranks have agreed on about stopping.
  Stop step();
  /// The all-reduce of scalars in each step: returns the summed loss and sets `stop`; includes health reports when due.
  double exchange(double loss, Stop& stop);
  void after_step(bool end_of_epoch);
  void evaluate_now();
  void save();
  void drain_checkpoints();
  void finish(Stop stop);
  [[noreturn]] void fail_loss(double loss);

  Run& run_;
  RunState state_;
  StopRequest& stop_;
  HealthMonitor health_;
  std::unique_ptr<BatchFeed> feed_;
  std::vector<double> shared_;  // of the step's exchange
  std::int64_t saved_step_ = -1;
  std::int64_t evaluated_step_ = -1;
  // rank 0 only
  std::unique_ptr<RunReport> report_;
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace convoy
