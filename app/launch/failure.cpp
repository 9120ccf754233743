// SPDX-License-Identifier: Apache-2.0
#include "app/launch/failure.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr int kMaxDelay = 60;

bool is_crash(int signal) {
  return signal == SIGSEGV || signal == SIGABRT || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
}

// Launchers pass on a rank's death by signal N as exit code 128 + N.
int rank_signal(const ExitStatus& status) { return status.signal == 0 && status.code > 128 ? status.code - 128 : 0; }

}  // namespace

EndKind classify(const GenerationEnd& end) {
  if (end.status.signal != 0) return EndKind::kKilled;  // mpirun or srun itself
  switch (end.status.code) {
    case static_cast<int>(ExitCode::kDone): return EndKind::kDone;
    case static_cast<int>(ExitCode::kUsage): return EndKind::kUsage;
    case static_cast<int>(ExitCode::kStopped): return EndKind::kStopped;
    default: break;
  }
  const int signal = rank_signal(end.status);
  // Before the trainer listens the stop signal ends a rank: nothing was under way yet.
  if (signal != 0 && signal == end.stop_signal) return EndKind::kStopped;
  if (!end.host.empty()) return EndKind::kSystemError;
  if (is_crash(signal) || !end.error.empty()) return EndKind::kProgramError;
  return EndKind::kKilled;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

std::string describe_oom(std::int64_t oom_kills) {
  if (oom_kills == 0) return "";
  return fmt::format("{} (docs/errors/out_of_memory.md)",
                     oom_kills > 0 ? ": out of memory, says the kernel" : ", possibly out of memory");
}

std::string describe_end(const GenerationEnd& end, const std::string& launcher) {
  const ExitStatus& status = end.status;
  if (status.signal != 0) return fmt::format("{} was killed by {}", launcher, signal_name(status.signal));
  if (status.code == 127) return launcher + " cannot be started";
  const int signal = rank_signal(status);
  const bool named = signal > 0 && ::sigabbrev_np(signal) != nullptr;
  if (named && is_crash(signal)) return fmt::format("a rank crashed with {}", signal_name(signal));
  if (named) {
    return fmt::format("a rank was killed by {}{}", signal_name(signal),
                       signal == SIGKILL ? describe_oom(end.oom_kills) : "");
  }
  if (!end.error.empty()) return fmt::format("exit code {}: {}", status.code, end.error);
  return fmt::format("{} ended with exit code {}", launcher, status.code);
}

bool RestartPolicy::repeats(const Failure& failure) const {
  return last_ && last_->program_error && failure.program_error && !last_->wrote_checkpoint &&
         !failure.wrote_checkpoint && last_->start_step == failure.start_step;
}

// A run that goes back writes the same checkpoint again before it fails at the same step: that is no progress.
bool RestartPolicy::older_may_help(const Failure& failure) const {
  return repeats(failure) && last_->resumed && failure.resumed && failure.start_step > went_back_from_ &&
         restarts_ < max_restarts_;
}

RestartPolicy::Verdict RestartPolicy::after(const Failure& failure, bool older) {
  const bool again = repeats(failure);
  last_ = failure;
  without_progress_ = failure.trained || failure.wrote_checkpoint ? 0 : without_progress_ + 1;
  if (older) went_back_from_ = failure.start_step;
  if (again && !older) {
    return {fmt::format("two generations in a row failed after the checkpoint of step {} without writing another",
                        failure.start_step)};
  }
  if (restarts_ >= max_restarts_) return {fmt::format("{} restarts (--max-restarts) are used up", max_restarts_)};
  ++restarts_;
  return {"", without_progress_ == 0 ? 0 : std::min(kMaxDelay, 1 << std::min(without_progress_ - 1, 6))};
}

}  // namespace convoy
