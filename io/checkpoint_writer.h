// SPDX-License-Identifier: Apache-2.0
//
// Writes checkpoints while training goes on: one background thread at a time, handed a copy of the state. Relies on
// checkpoint.h and checkpoint_folder.h. Invariant: at most one write is in flight, and its error reaches the caller
// exactly once, at the next write(), poll() or wait().
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "io/checkpoint.h"

namespace convoy {

class CheckpointWriter {
 public:
  /// A checkpoint that is on disk.
  struct Result {
    std::int64_t step = 0;
    std::string path;
    double seconds = 0;  ///< from the first byte to the rename
  };

  /// Creates the folder when it is missing and removes what a killed writer left. Keeps the `keep` newest (0: all).
  CheckpointWriter(std::string dir, int keep, bool async);
  /// Ends the write in flight, whatever comes of it.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Writes DIR/step-XXXXXXXX.h5: in the background when async (after waiting for the one before), else before
  /// returning.
  void write(Checkpoint checkpoint);
  /// The checkpoints finished since the last call; never waits. Throws the error of a failed write.
  [[nodiscard]] std::vector<Result> poll();
  /// Waits for the write in flight, if any. Throws its error.
  void wait();

 private:
  void run(const Checkpoint& checkpoint) noexcept;
  void join_and_rethrow();

  const std::string dir_;
  const int keep_;
  const bool async_;
  std::thread thread_;
  std::atomic<bool> done_{false};  // set last by the thread: what is below may be read after it, or after a join
  std::exception_ptr error_;
  Result result_;
  std::vector<Result> finished_;  // the caller's side only
};

}  // namespace convoy
