// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints by the names that users give them: a file, "newest" or "best", or a run's folder.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "io/checkpoint/checkpoint_folder.h"

namespace convoy {

/// The file that `named` means: a file as it is; a run's folder (or one of checkpoints) its newest valid checkpoint;
/// "newest" and "best" that of the run folder `run`, RUN/newest and RUN/best that of RUN. The best one is that to which
/// best.h5 points (checkpoint.keep_best); else that with the highest top-1 of validation in metrics.jsonl, or without
/// class labels the lowest loss, of equal ones the earliest. `checkpoints`: where those of `run` are. Throws a usage
/// Error if there is none.
[[nodiscard]] std::string find_checkpoint(const std::string& named, const std::string& run,
                                          const std::string& checkpoints);

// Evaluations of another past do not count: those before a start that did not go on from the run's own checkpoints.

/// Whether the metrics of the run folder `run` have an evaluation of this step.
[[nodiscard]] bool was_evaluated(const std::string& run, std::int64_t step);

/// The score of an evaluation by "top1" or "loss", the higher the better, with the digits that metrics.jsonl keeps: a
/// resumed run compares as one that was not interrupted.
[[nodiscard]] double evaluation_score(std::string_view by, double top1, double loss);

/// The scores in metrics.jsonl by step, those that are finite; by "": top1, or without class labels loss.
[[nodiscard]] StepScores evaluation_scores(const std::string& metrics, std::string_view by);

/// When a run has stopped improving (train.early_stop_epochs). Evaluations are added in the order of their steps.
class EarlyStop {
 public:
  /// epochs: evaluations in a row without improvement that end the run; 0: any number does not. metric: "top1", "loss".
  EarlyStop(std::int64_t epochs, std::string metric) : epochs_(epochs), metric_(std::move(metric)) {}
  void add(double top1, double loss);
  /// Those in this metrics.jsonl up to a step, of each step the last one.
  void add_from(const std::string& metrics, std::int64_t last_step);
  [[nodiscard]] bool reached() const { return epochs_ > 0 && without_ >= epochs_; }

 private:
  std::int64_t epochs_;
  std::string metric_;
  double best_ = -std::numeric_limits<double>::infinity();
  std::int64_t without_ = 0;  // evaluations since the best one
};

/// Whether `path` is a run's folder, by what is in it. Throws a SystemError when it may not be searched.
[[nodiscard]] bool is_run_folder(const std::string& path);

}  // namespace convoy
