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
};

class RestartPolicy {
 public:
  RestartPolicy(int max_restarts, int restarts) : max_restarts_(max_restarts), restarts_(restarts) {}

  struct Verdict {
    std::string give_up;  ///< why; empty: restart
    int delay_seconds = 0;
  };
  Verdict after(const Failure& failure);
  /// A failure of an earlier life of this launch, which counts only for the same-checkpoint rule.
  void remember(const Failure& failure) { last_ = failure; }
  [[nodiscard]] int restarts() const { return restarts_; }

 private:
  int max_restarts_;
  int restarts_;
  int without_progress_ = 0;
  std::optional<Failure> last_;
};

}  // namespace convoy
