// SPDX-License-Identifier: Apache-2.0
//
// The folder of a run's checkpoints: names, the newest whole file, rotation, what a killed writer left behind. Relies
// on checkpoint.h to say whether a file is valid. Invariant: only files named step-XXXXXXXX.h5 (8 digits or more), and
// the temporary ones of such files, are ever looked at, renamed or removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
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

/// Removes all but the `keep` newest of the checkpoints up to `newest_step` (0: keeps all). A file that cannot be
/// removed is an Error.
void rotate_checkpoints(const std::string& dir, int keep,
                        std::int64_t newest_step = std::numeric_limits<std::int64_t>::max());

/// Removes the temporary files of writers that were killed. Only for the folder's one writer, and while it is idle.
void remove_stale_temporaries(const std::string& dir);

/// Renames checkpoints of steps after `step` to NAME.superseded (NAME.superseded.1, ... if that exists): for a run that
/// resumes from an earlier point, so that its next start does not find the steps of the abandoned one. Returns the new
/// names.
std::vector<std::string> set_aside_checkpoints_after(const std::string& dir, std::int64_t step);

}  // namespace convoy
