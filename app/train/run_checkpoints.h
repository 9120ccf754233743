// SPDX-License-Identifier: Apache-2.0
//
// The checkpoints of a run as rank 0 looks after them: written in the background, reported when they are on disk, tried
// again, kept by their score, copied to a second folder. Relies on io/checkpoint. The trainer decides when to save.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/build/build_run.h"
#include "app/build/run_state.h"
#include "app/train/run_report.h"
#include "app/train/stop.h"
#include "io/checkpoint/checkpoint_copies.h"
#include "io/checkpoint/checkpoint_writer.h"

namespace convoy {

/// Prepares the folder of second copies (checkpoint.copy_to), if there is one. Throws a usage Error if it cannot be
/// used; if it could be at an earlier start, that is a warning, which is returned.
[[nodiscard]] std::string prepare_copies(const Run& run, const RunState& state);

class RunCheckpoints {
 public:
  /// Opens the folders, and sets aside what is of another past of the run than `state`. All must outlive this.
  /// `copy_warning`: of prepare_copies().
  RunCheckpoints(const Run& run, RunState& state, RunReport& report, StopRequest& stop,
                 const std::string& copy_warning);

  /// Memory of an earlier checkpoint, to be filled again.
  [[nodiscard]] Checkpoint recycle() { return writer_->recycle(); }
  /// Writes it, in the background if the config says so. Returns false if it could not be written: it is to be tried
  /// again. The third failure in a row throws.
  [[nodiscard]] bool write(Checkpoint checkpoint, double seconds);
  /// Reports what has been written and copied since the last call. Returns false if a checkpoint could not be written.
  [[nodiscard]] bool drain();
  /// Notes the score of an evaluation (checkpoint.keep_best). Returns whether its step is the best and not yet saved.
  [[nodiscard]] bool evaluated(std::int64_t step, double score) { return writer_->evaluated(step, score); }
  /// Waits for what is being written; throws its error.
  void wait() { writer_->wait(); }
  /// Waits for the last checkpoint, whose error is the run's, and for its copy.
  void finish();

 private:
  void set_aside_other_past();
  void warn_of_disk_space();
  void record();
  void drain_copies();
  void not_written(const Error& error);

  const Run& run_;
  RunState& state_;
  RunReport& report_;
  StopRequest& stop_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::unique_ptr<CheckpointCopier> copier_;
  int failed_writes_ = 0;     // since the last checkpoint
  double write_seconds_ = 0;  // of the last checkpoint
};

}  // namespace convoy
