// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints by the names that users give them: a file, "newest" or "best", or a run's folder.
#pragma once

#include <cstdint>
#include <string>

namespace convoy {

/// The file that `named` means: a file as it is; a run's folder (or one of checkpoints) its newest valid checkpoint;
/// "newest" and "best" that of the run folder `run`, RUN/newest and RUN/best that of RUN. The best one is that with the
/// highest top-1 of validation in metrics.jsonl, or without class labels the lowest loss. `checkpoints`: where those of
/// `run` are. Throws a usage Error if there is none.
[[nodiscard]] std::string find_checkpoint(const std::string& named, const std::string& run,
                                          const std::string& checkpoints);

/// Whether the metrics of the run folder `run` have an evaluation of this step.
[[nodiscard]] bool was_evaluated(const std::string& run, std::int64_t step);

/// Whether `path` is a run's folder, by what is in it.
[[nodiscard]] bool is_run_folder(const std::string& path);

}  // namespace convoy
