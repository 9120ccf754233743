// SPDX-License-Identifier: Apache-2.0
//
// Classifies the end of a generation, and decides after a failure whether and when to restart. Pure functions.
// Invariant: a kill from outside, and an error of the system, do not count towards "the same checkpoint failed twice".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/launch/child_process.h"

namespace convoy {

enum class EndKind {
  kDone,
  kUsage,        ///< exit 2: a restart would find the same
  kStopped,      ///< exit 75
  kKilled,       ///< a rank, a host or the launcher was killed or lost
  kSystemError,  ///< the system of a host failed: a full disk, an I/O error, a lock that is held
  kProgramError  ///< the program gave up or crashed by itself
};

struct GenerationEnd {
  ExitStatus status;    ///< of mpirun or srun
  std::string error;    ///< what the program reported, if anything
  bool resize = false;  ///< launch had asked it to stop
  int stop_signal = 0;  ///< with which signal, when it had
  /// Processes that the kernel has killed for memory meanwhile, in the cgroup of all ranks; -1: it cannot be told.
  std::int64_t oom_kills = 0;
  std::string host = {};  ///< whose system is at fault, by the program's report (SystemError::host()); or empty
};

[[nodiscard]] EndKind classify(const GenerationEnd& end);
/// "a rank was killed by SIGKILL", for people; with what is known of memory.
[[nodiscard]] std::string describe_end(const GenerationEnd& end, const std::string& launcher);
/// What a SIGKILL says of memory: ": out of memory (...)", ", possibly out of memory (...)", or nothing.
[[nodiscard]] std::string describe_oom(std::int64_t oom_kills);
/// "SIGKILL", or "signal 64".
[[nodiscard]] std::string signal_name(int signal);

/// A generation that failed.
struct Failure {
  bool program_error = false;
  std::int64_t start_step = 0;  ///< of the checkpoint from which it resumed
  bool wrote_checkpoint = false;
  bool trained = false;  ///< it did a step
  bool resumed = true;   ///< its trainer began: an earlier failure says nothing about the checkpoint
};

class RestartPolicy {
 public:
  RestartPolicy(int max_restarts, int restarts) : max_restarts_(max_restarts), restarts_(restarts) {}

  struct Verdict {
    std::string give_up;  ///< why; empty: restart
    int delay_seconds = 0;
  };
  /// Whether `failure`, of which after() does not know yet, is the second at its checkpoint, so that an older one may
  /// be at fault less. Once only: not if the run had gone back from this checkpoint, or a later one, before.
  [[nodiscard]] bool older_may_help(const Failure& failure) const;
  /// older: the next generation resumes from an older checkpoint.
  Verdict after(const Failure& failure, bool older = false);
  /// A failure of an earlier life of this launch, which counts only for the same-checkpoint rule.
  void remember(const Failure& failure) { last_ = failure; }
  /// A launch before went back from the checkpoint of this step.
  void remember_going_back(std::int64_t step) { went_back_from_ = step; }
  [[nodiscard]] int restarts() const { return restarts_; }
  /// The newest checkpoint that failed twice and was set aside; -1: none.
  [[nodiscard]] std::int64_t went_back_from() const { return went_back_from_; }

 private:
  int max_restarts_;
  int restarts_;
  int without_progress_ = 0;
  std::int64_t went_back_from_ = -1;
  std::optional<Failure> last_;

  [[nodiscard]] bool repeats(const Failure& failure) const;
};

}  // namespace convoy
