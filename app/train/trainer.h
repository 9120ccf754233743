// SPDX-License-Identifier: Apache-2.0
//
// The training loop: steps, evaluations, checkpoints, reports and stops. Every rank runs it; only rank 0 writes files.
// Invariant: all ranks agree on whether a step is the last.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "app/build/run_state.h"
#include "app/train/batch_feed.h"
#include "app/train/health.h"
#include "app/train/run_report.h"
#include "app/train/stop.h"
#include "io/checkpoint/checkpoint_copies.h"
#include "io/checkpoint/checkpoint_writer.h"

namespace convoy {

/// Throws a usage Error if checkpoint.keep_best cannot be had with the run's data. Collective.
void check_keep_best(const Run& run);

class Trainer {
 public:
  /// Opens the run's files and writes the resolved config: training begins. state: where to resume; stop: when to end
  /// early. Both must outlive this.
  Trainer(Run& run, const RunState& state, StopRequest& stop);
  /// Trains to the end, or until a stop is requested. Returns why it ended. Throws a collective Error when the loss,
  /// the gradients or the weights are not finite.
  ExitCode train();

 private:
  enum class Stop { kNo, kSignal, kMaxTime };

  void open_files();
  /// Opens the folder of second copies. Returns a warning if it cannot be used, but could be earlier.
  std::string open_copies();
  void drain_copies();
  /// One step; returns what the ranks have agreed on about stopping.
  Stop step();
  void warn_of_disk_space();
  void watch_for_errors();
  /// The all-reduce of scalars in each step: returns the summed loss and sets `stop`; includes health reports when due.
  double exchange(const LossTotals& totals, Stop& stop);
  void after_step(bool end_of_epoch);
  void evaluate_now();
  /// Whether checkpoint.keep_best keeps the model that was just evaluated. Collective.
  bool is_best(const EvalResult& result);
  void save();
  void drain_checkpoints();
  void finish(Stop stop);
  void not_written(const Error& error);
  [[noreturn]] void fail_nonfinite(const std::string& what);

  Run& run_;
  RunState state_;
  StopRequest& stop_;
  HealthMonitor health_;
  std::unique_ptr<BatchFeed> feed_;
  std::vector<double> shared_;  // of the step's exchange
  struct Position {
    std::atomic<std::int64_t> step{0}, epoch{0};
  };
  std::shared_ptr<Position> at_ = std::make_shared<Position>();  // for the report of an error
  std::int64_t saved_step_ = -1;
  std::int64_t evaluated_step_ = -1;
  // rank 0 only
  std::unique_ptr<RunReport> report_;
  std::unique_ptr<CheckpointWriter> writer_;
  int failed_writes_ = 0;  // since the last checkpoint
  std::unique_ptr<CheckpointCopier> copier_;
  double write_seconds_ = 0;  // of the last checkpoint
};

}  // namespace convoy
