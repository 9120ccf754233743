// SPDX-License-Identifier: Apache-2.0
//
// The time at which the batch job of this process reaches its limit: from SLURM_JOB_END_TIME (Slurm 23.02 and newer) or
// from squeue. Invariant: if it cannot be determined, that is not an error: the run has no limit, as outside a job.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "parallel/world/launch_check.h"

namespace convoy {

/// Runs a shell command and returns its output; nothing when it failed.
using CommandOutput = std::function<std::optional<std::string>(const std::string& command)>;

/// The implementation with popen(3).
[[nodiscard]] std::optional<std::string> command_output(const std::string& command);

/// Seconds until the end of the Slurm job; nothing outside of one, and for a job without a limit.
[[nodiscard]] std::optional<std::chrono::duration<double>> time_left_in_job(
    const Environment& environment = process_environment(), const CommandOutput& run = command_output);

}  // namespace convoy
