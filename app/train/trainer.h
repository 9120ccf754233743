// SPDX-License-Identifier: Apache-2.0
//
// The training loop: steps, checkpoints, evaluations, reports and stops. Every rank runs it; only rank 0 writes files.
// An epoch's checkpoint is written before its evaluation and says that one is due, so that a stop loses neither.
// Invariant: all ranks agree on whether a step, or a batch of an evaluation, is the last.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "app/build/find_checkpoint.h"
#include "app/build/run_state.h"
#include "app/train/batch_feed.h"
#include "app/train/health.h"
#include "app/train/run_checkpoints.h"
#include "app/train/run_report.h"
#include "app/train/stop.h"

namespace convoy {

/// Throws a usage Error if checkpoint.keep_best or train.early_stop_epochs cannot be had with the run's data.
/// Collective.
void check_evaluation_keys(const Run& run);

class Trainer {
 public:
  /// Opens the run's files and writes the resolved config: training begins. state: where to resume; stop: when to end
  /// early. Both must outlive this.
  Trainer(Run& run, const RunState& state, StopRequest& stop);
  /// Trains to the end, or until a stop is requested. Returns why it ended. Throws a collective Error when the loss,
  /// the gradients or the weights are not finite.
  ExitCode train();

 private:
  void open_files();
  /// Counters that cannot be read are a line in the log. Collective.
  void report_energy_counters();
  void step();
  /// Where a stop can be taken: after a step, or a batch of an evaluation.
  void at_boundary();
  /// Notes an evaluation for train.early_stop_epochs. Collective.
  void stop_early(const EvalResult& result);
  /// Whether nothing is left to do.
  [[nodiscard]] bool is_done() const { return is_finished(run_.config, state_) && !state_.evaluation_due; }
  void watch_for_errors();
  /// The all-reduce of scalars in each step: returns the summed loss and sets stopped_; includes health reports when
  /// due.
  double exchange(const LossTotals& totals);
  void after_step(bool end_of_epoch);
  /// The evaluation that is due; it remains so if a stop cuts it short.
  void evaluate_now();
  /// Whether checkpoint.keep_best keeps the model that was just evaluated. Collective.
  bool is_best(const EvalResult& result);
  void save();
  void drain_checkpoints();
  void finish();
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
  StopReason stopped_ = StopReason::kNo;                                               // what the ranks have agreed on
  std::chrono::steady_clock::time_point boundary_ = std::chrono::steady_clock::now();  // the last one
  std::string cut_short_;  // how far an evaluation came that a stop ended, for people
  // rank 0 only
  EarlyStop early_stop_;
  std::unique_ptr<RunReport> report_;
  std::unique_ptr<RunCheckpoints> checkpoints_;
};

}  // namespace convoy
