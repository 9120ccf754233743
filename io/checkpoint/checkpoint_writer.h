// SPDX-License-Identifier: Apache-2.0
//
// Writes checkpoints while training continues: one background thread at a time, handed a copy of the state. Relies on
// checkpoint.h and checkpoint_folder.h. Invariant: at most one write is in flight, and its error reaches the caller
// exactly once, at the next write(), poll() or wait(). Old files that cannot be removed are no error but a warning.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_folder.h"

namespace convoy {

class CheckpointWriter {
 public:
  /// A checkpoint that is on disk.
  struct Result {
    std::int64_t step = 0;
    std::string path;
    double seconds = 0;        ///< from the first byte to the rename
    double stall_seconds = 0;  ///< that training stood still for it
  };

  /// Creates the folder when it is missing and removes what a killed writer left. Keeps the `keep` newest (0: all).
  /// With `scores`, of the evaluations so far, it also keeps the best of those that are there, and links best.h5 to it.
  CheckpointWriter(std::string dir, int keep, bool async, std::optional<StepScores> scores = std::nullopt);
  /// Ends the write in flight, whatever comes of it.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Is called before each file is written, by the thread that writes it: what must be on disk before the checkpoint
  /// is.
  void set_before_write(std::function<void()> call) { before_write_ = std::move(call); }
  /// Writes DIR/step-XXXXXXXX.h5: in the background when async (after waiting for the one before), else before
  /// returning. `copied_in` seconds were spent on copying the state: with the wait they are the stall.
  void write(Checkpoint checkpoint, double copied_in = 0);
  /// The state that was written last, to put the next one into its memory; an empty one while a write is in flight.
  [[nodiscard]] Checkpoint recycle();
  /// The checkpoints finished since the last call; never waits. Throws the error of a failed write.
  [[nodiscard]] std::vector<Result> poll();
  /// What went wrong beside the writing, a sentence each: one when a rotation fails, and none until one has succeeded.
  [[nodiscard]] std::vector<std::string> take_warnings();
  /// The model after `step` has been evaluated. Returns whether it is better than that of every other checkpoint that
  /// is there or being written; a score that is not finite never is. Without scores: false. Its own checkpoint may be
  /// there, in flight, or written after this.
  bool evaluated(std::int64_t step, double score);
  /// Of all evaluations.
  [[nodiscard]] StepScores scores();
  /// Waits for the write in flight, if any. Throws its error.
  void wait();

 private:
  void run(double stall_seconds) noexcept;
  void rotate();
  void warn(const std::string& problem, bool& told, const char* then);
  void join_and_rethrow();

  const std::string dir_;
  const int keep_;
  const bool async_;
  std::function<void()> before_write_;
  std::thread thread_;
  std::atomic<bool> done_{false};  // set last by the thread: what is below may be read after it, or after a join
  Checkpoint state_;               // the thread's while it runs
  hdf5::FileImageBuffer memory_;
  std::exception_ptr error_;
  Result result_;
  std::vector<Result> finished_;  // the caller's side only
  std::mutex mutex_;              // of what follows
  std::vector<std::string> warnings_;
  bool rotation_failed_ = false, link_failed_ = false;  // the last time
  std::optional<StepScores> scores_;
  std::int64_t in_flight_ = -1;  // step of the write that has not come to its rotation
  std::int64_t newest_ = -1;     // step of the last one that is complete
};

}  // namespace convoy
