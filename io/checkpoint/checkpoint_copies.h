// SPDX-License-Identifier: Apache-2.0
//
// Second copies of a run's checkpoints in another folder (checkpoint.copy_to): a background thread makes them from the
// files of the first folder, reads them back, and rotates them. Relies on checkpoint_folder.h and checkpoint.h.
// Invariant: a copy has its name only once it is on disk and has been read back; nothing here ends a run that goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/checkpoint/checkpoint_folder.h"

namespace convoy {

/// Copies the file `from` to `to`, durably, under a temporary name until it has been read back. Throws an Error if
/// `from` is damaged, if the copy reads otherwise, or if either folder fails; nothing of the attempt is left then.
void copy_checkpoint(const std::string& from, const std::string& to);

/// Makes the folder DIR/RUN of the copies of the run whose folder is `run`, an absolute path, and writes that path to
/// run.txt in it. DIR is made if its parent exists. Throws an Error if the folder cannot be written, and a usage Error
/// if it holds the copies of another run.
void prepare_copy_folder(const std::string& folder, const std::string& run);

/// The checkpoint to resume from, with copies in `copies`: the newest of `dir` that is valid, or whose copy is; if
/// `dir` has none, the newest valid copy. Each file that is passed over, and the use of a copy, is a warning. Empty if
/// there is none at all.
[[nodiscard]] std::optional<std::filesystem::path> find_checkpoint_or_copy(const std::string& dir,
                                                                           const std::string& copies,
                                                                           const WarnCallback& warn);

/// The thread that copies. Its work depends on what is in the folders, not on what it was told before: a copy that
/// failed or was left out while another was made is no debt.
class CheckpointCopier {
 public:
  /// A copy, or why there is none.
  struct Result {
    std::int64_t step = 0;
    std::string path;
    double seconds = 0;
    std::string problem;  ///< empty: it is there
  };

  /// From the folder `from` to the existing folder `to`, which keeps the `keep` newest copies and the best.
  CheckpointCopier(std::string from, std::string to, int keep);
  /// Gives up what is being copied. A thread that a dead file system does not let go is left alone.
  ~CheckpointCopier();
  CheckpointCopier(const CheckpointCopier&) = delete;
  CheckpointCopier& operator=(const CheckpointCopier&) = delete;

  /// There is a new checkpoint, or another best one: copies the newest and the best where they are missing. Never
  /// waits.
  void wake(StepScores scores);
  /// What has ended since the last call; never waits.
  [[nodiscard]] std::vector<Result> take();
  /// Waits for what wake() has asked for. Returns false if nothing was read or written for `patience`.
  [[nodiscard]] bool finish(std::chrono::milliseconds patience);

 private:
  struct Shared;
  static void work(Shared& shared) noexcept;
  static void copy_missing(Shared& shared, const StepScores& scores);

  std::shared_ptr<Shared> shared_;  // also the thread's, which may outlive this
  std::thread thread_;
};

}  // namespace convoy
