// SPDX-License-Identifier: Apache-2.0
//
// All output of a training run: metrics.jsonl, TensorBoard events, log.txt and the terminal. Rank 0 only. Invariant: on
// a resume, events of steps after the checkpoint are removed from metrics.jsonl.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "app/build/run_state.h"
#include "app/train/evaluate.h"
#include "app/train/health.h"
#include "app/train/progress.h"
#include "io/checkpoint/checkpoint_copies.h"
#include "io/checkpoint/checkpoint_writer.h"
#include "io/data/sampler.h"
#include "io/log/metrics_log.h"
#include "io/log/prometheus.h"
#include "io/log/run_log.h"
#include "io/log/tensorboard.h"

namespace convoy {

/// A completed step.
struct StepFacts {
  std::int64_t step = 0;
  std::int64_t epoch = 0;                  ///< that it belongs to, from 0
  std::int64_t position = 0, samples = 0;  ///< which of the epoch's order
  double loss = 0, lr = 0;
  double gradient_norm = 0;  ///< NaN: not computed
  double images_per_second = 0;
  double data_wait_s = 0;
  double energy_j = 0;          ///< read since the step before, of all nodes; 0: nothing was read
  std::int64_t image_size = 0;  ///< 0: not one of data.train_sizes
};

class RunReport {
 public:
  /// Opens the files of the run's folder and says where the run starts.
  RunReport(const Run& run, const RunState& state);

  void step(const StepFacts& facts);
  /// The CPUs of rank 0 were contended for the first time; for the log alone.
  void contention(std::int64_t step);
  void health(std::int64_t step, const HealthReport& report);
  /// An evaluation is under way: for the progress display alone.
  void evaluating(const RunState& state, std::int64_t done, std::int64_t batches);
  void evaluation(const RunState& state, const EvalResults& results, double seconds);
  void checkpoint(const CheckpointWriter::Result& written);
  /// A second copy, or why there is none: a warning, on the terminal for the first of several in a row.
  void copy(const CheckpointCopier::Result& copied);
  /// What the energy counters do not tell, for the log alone.
  void energy_problem(const std::string& text);
  /// Joules that no step has reported.
  void more_energy(double joules);
  /// The end of the run: the reason for metrics.jsonl and a message for the user.
  void end(const char* reason, const RunState& state, const std::string& sentence);
  /// Makes the metrics so far durable. May be called by another thread.
  void sync() { metrics_.sync(); }
  /// Prints a line to the terminal and the log.
  void message(const std::string& text);
  /// The same, to stderr.
  void warning(const std::string& text);

 private:
  /// The confusion matrix of the newest evaluation goes to confusion.csv.
  void write_confusion(const EvalResult& result);
  /// Writes the file for Prometheus, if there is one, with the last step and what `change` sets. An error is one
  /// warning.
  void to_prometheus(const std::function<void(PrometheusFile& file)>& change);

  const Config& config_;
  std::int64_t total_steps_;
  std::int64_t outputs_;  // of the network
  std::int64_t classes_;  // 0: regression
  std::vector<std::string> class_names_;
  RunLog log_;
  MetricsLog metrics_;
  std::unique_ptr<TensorboardWriter> tensorboard_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<PrometheusFile> prometheus_;    // null: none
  double energy_pending_ = 0, energy_total_ = 0;  // joules: not yet in metrics.jsonl, and since the start
  Sampler order_;
  StepFacts last_;
  int told_straggler_ = -1;
  bool copy_failed_ = false;  // the last one
  bool prometheus_failed_ = false;
  std::int64_t image_size_ = 0;  // of the step before; 0: there was none
};

}  // namespace convoy
