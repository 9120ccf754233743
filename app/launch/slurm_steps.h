// SPDX-License-Identifier: Apache-2.0
//
// The job steps that this process starts with srun. Ranks outlive an srun that was killed: Slurm must be told to end
// their step (scancel JOB.STEP). Relies on squeue and scancel. Invariant: no call takes longer than their time limit.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace convoy {

/// The name of these steps, for srun --job-name: "convoy-PID".
[[nodiscard]] std::string slurm_step_name();

/// The IDs of the steps with that name in squeue's output of "ID NAME" lines.
[[nodiscard]] std::vector<std::string> steps_named(const std::string& squeue_output, const std::string& name);

/// Ends the steps of a killed srun, and waits until Slurm has.
class SlurmStepEnd {
 public:
  using Clock = std::chrono::steady_clock;

  /// Asks Slurm at most once a second. True once no step is left, or after a minute, with a warning. Does not wait.
  [[nodiscard]] bool done();
  /// Only tells Slurm to end the steps that there are, if it can.
  static void cancel_all() noexcept;

 private:
  Clock::time_point start_ = Clock::now(), next_ = start_;
};

}  // namespace convoy
