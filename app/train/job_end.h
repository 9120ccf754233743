// SPDX-License-Identifier: Apache-2.0
//
// When the batch job that this process runs in will be ended by its time limit. Slurm says so in SLURM_JOB_END_TIME
// (23.02 and newer); older ones are asked with squeue. Invariant: no answer is no error: the run then goes without a
// limit, as outside of a job.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "parallel/world/launch_check.h"

namespace convoy {

/// Runs a shell command and returns its output; nothing when it failed.
using CommandOutput = std::function<std::optional<std::string>(const std::string& command)>;

/// The real one.
[[nodiscard]] std::optional<std::string> command_output(const std::string& command);

/// Seconds until the end of the Slurm job; nothing outside of one, and for a job without a limit.
[[nodiscard]] std::optional<std::chrono::duration<double>> time_left_in_job(
    const Environment& environment = process_environment(), const CommandOutput& run = command_output);

}  // namespace convoy
