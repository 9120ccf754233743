// SPDX-License-Identifier: Apache-2.0
//
// The folder of a run's checkpoints: names, the newest whole file, rotation, what a killed writer left behind. Relies
// on checkpoint.h to say whether a file is valid. Invariant: only files named step-XXXXXXXX.h5 (8 digits or more), the
// temporary ones of such files, and the symbolic link best.h5 are ever looked at, renamed or removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace convoy {

/// DIR/step-00000120.h5
[[nodiscard]] std::string checkpoint_path(const std::string& dir, std::int64_t step);

struct CheckpointFile {
  std::int64_t step = 0;
  std::string path;
};

/// All checkpoints of the folder, oldest step first, whole or not; none when there is no such folder.
[[nodiscard]] std::vector<CheckpointFile> list_checkpoints(const std::string& dir);

/// Receives one sentence for each file that is skipped: which, what is wrong with it, and what is used instead.
using WarnCallback = std::function<void(const std::string&)>;

/// The course of a search from the newest checkpoint to older ones. It ends at the first that is valid, and at the
/// first that cannot be read: nobody knows whether that one is valid.
struct CheckpointSearch {
  std::optional<CheckpointFile> found;
  std::string run;                    ///< Checkpoint::run of `found`
  std::vector<std::string> invalid;   ///< what is wrong with each that is newer, newest first
  std::string unreadable;             ///< why the one that ended the search cannot be read; empty: none did
  std::vector<CheckpointFile> older;  ///< than that one, newest first; they were not read
};

/// Changes nothing. Throws an Error if the folder is there and cannot be listed.
[[nodiscard]] CheckpointSearch search_checkpoints(const std::string& dir);

/// Warns of each invalid checkpoint that a search skipped.
void warn_of_skipped(const CheckpointSearch& search, const WarnCallback& warn);

/// Path of the newest checkpoint that is valid; empty when there is none. Newer ones that are damaged, truncated or
/// incomplete are skipped with a warning each. One that cannot be read is an Error. Changes nothing.
[[nodiscard]] std::optional<std::filesystem::path> find_newest_checkpoint(const std::string& dir,
                                                                          const WarnCallback& warn);

/// Evaluations: the score of the model after each step, the higher the better.
using StepScores = std::map<std::int64_t, double>;

/// The checkpoint with the highest score; of equal ones the earliest. Nothing if none has a score.
[[nodiscard]] std::optional<CheckpointFile> best_checkpoint(const std::vector<CheckpointFile>& files,
                                                            const StepScores& scores);

/// Removes all but the `keep` newest of the checkpoints up to `newest_step` (0: keeps all) and the best by `scores`.
/// Returns a sentence for each file that cannot be removed, or for a folder that cannot be listed.
[[nodiscard]] std::vector<std::string> rotate_checkpoints(
    const std::string& dir, int keep, std::int64_t newest_step = std::numeric_limits<std::int64_t>::max(),
    const StepScores& scores = {});

/// Points the symbolic link DIR/best.h5 to the best checkpoint that is there; without one removes the link. Returns
/// what is wrong: the link cannot be made, or something else has its name.
[[nodiscard]] std::string link_best_checkpoint(const std::string& dir, const StepScores& scores);

/// The checkpoint to which DIR/best.h5 points; empty if there is no such link or file.
[[nodiscard]] std::string linked_best_checkpoint(const std::string& dir);

/// Removes the temporary files of writers that were killed. Only for the folder's one writer, and while it is idle.
void remove_stale_temporaries(const std::string& dir);

/// Renames checkpoints of steps after `step` to NAME.superseded (NAME.superseded.1, ... if that exists): for a run that
/// resumes from an earlier point, so that its next start does not find the steps of the abandoned one. Returns the new
/// names.
std::vector<std::string> set_aside_checkpoints_after(const std::string& dir, std::int64_t step);

/// Renames checkpoints of `step` and later ones to NAME.failed (NAME.failed-2, ... where that is taken): those that a
/// run cannot resume from. Returns the new names.
std::vector<std::string> set_aside_failed_checkpoints(const std::string& dir, std::int64_t step);

}  // namespace convoy
