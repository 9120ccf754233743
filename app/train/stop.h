// SPDX-License-Identifier: Apache-2.0
//
// Reasons to end a run early: a signal, run.max_time, or the end of the Slurm job that it runs in. Handlers only
// record; the trainer asks at each boundary (after a step, or a batch of an evaluation) and agrees with all ranks.
// Invariant: a second signal ends the process at once, but copies of the first one (launchers forward what their ranks
// also get directly) do not. Handlers run on a thread of their own.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace convoy {

/// Why a run ends early.
enum class StopReason { kNo, kSignal, kMaxTime };

class StopRequest {
 public:
  using Seconds = std::chrono::duration<double>;

  /// Catches `signals` ("SIGTERM", ...) from now on, to the end of the process: all ranks stop as soon as one has its
  /// signal, and those of the others may still be on their way. Construct it before threads that compute: it blocks the
  /// signals in the calling thread, and threads inherit that. max_time counts from now.
  StopRequest(const std::vector<std::string>& signals, std::optional<std::chrono::seconds> max_time);
  ~StopRequest() = default;
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// The process is killed after this time: the run must have ended, with its checkpoint, a margin before.
  void set_job_end(Seconds from_now);
  /// How long it has taken lately from one boundary to the next, and to write a checkpoint: the longest of each
  /// enter the margin twice.
  void observe_boundary(Seconds elapsed);
  void observe_checkpoint(Seconds elapsed);

  [[nodiscard]] bool signalled() const;
  [[nodiscard]] bool time_is_up() const;
  /// Throws an Error with exit code 75 if this rank has been told to stop, or its time is up: for long work before the
  /// training, which leaves nothing behind. doing: "staging the data".
  void check(const std::string& doing) const;
  /// Before the end of the job: half a minute, and twice the longest boundary and checkpoint so far.
  [[nodiscard]] Seconds margin() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<Clock::time_point> deadline_, job_end_;
  Seconds longest_boundary_{0}, longest_checkpoint_{0};
};

/// From the numbers of ranks that were signalled and whose time is up.
[[nodiscard]] inline StopReason stop_reason(double signalled, double time_is_up) {
  if (signalled > 0) return StopReason::kSignal;
  return time_is_up > 0 ? StopReason::kMaxTime : StopReason::kNo;
}

/// The same reason on every rank. Collective.
[[nodiscard]] StopReason agree_on_stop(Communicator& all, const StopRequest& stop);

}  // namespace convoy
