// SPDX-License-Identifier: Apache-2.0
//
// The state of a launch, in `launch/state.json` of the run folder. A launch that was killed resumes its counts from it.
// Invariant: only the holder of the leader lock writes it, atomically.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convoy {

/// One start of all ranks.
struct GenerationRecord {
  int number = 0;
  int ranks = 0;
  std::string hosts;                                ///< "a:2 b:2"
  std::string reason;                               ///< why it was started
  std::string start, end;                           ///< UTC; end is empty while it runs
  double seconds_lost = 0;                          ///< from the last step that was seen before to its own first
  std::int64_t step_at_start = 0, step_at_end = 0;  ///< of the newest checkpoint
  std::int64_t starts_before = 0;                   ///< trainings that had begun before it (RunStatus)
  std::string exit;                                 ///< how it ended, for people
  bool program_error = false;                       ///< ended by an error of the program, not by a kill
};

/// Where the job stands.
enum class JobStatus { kRunning, kDone, kStopped, kFailed };

struct JobState {
  JobStatus status = JobStatus::kRunning;
  int exit_code = 0;   ///< of the launch, when it is over
  int generation = 0;  ///< number of the last one
  int restarts = 0;
  /// The newest checkpoint that failed twice, so that an older one was tried; -1: none.
  std::int64_t went_back_from = -1;
  std::string leader;  ///< who wrote this: host, and the token of its lock
  std::vector<GenerationRecord> generations;
};

/// A fresh state when there is no file; throws a usage Error for a file that is none of ours.
[[nodiscard]] JobState read_job_state(const std::string& path);
void write_job_state(const std::string& path, const JobState& state);

}  // namespace convoy
