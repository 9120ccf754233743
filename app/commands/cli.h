// SPDX-License-Identifier: Apache-2.0
//
// The command line: which command with which arguments (docs/interface.md), checked before anything starts. Reads
// no config and starts no MPI.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/commands/commands.h"

namespace convoy {

struct DoctorArguments {};

/// What a command line asks for.
using Command = std::variant<TrainArguments, EvalArguments, PredictArguments, BenchArguments, PlanArguments,
                             ScheduleArguments, CheckArguments, InspectArguments, PackArguments, ReportArguments,
                             WatchArguments, VerifyArguments, DoctorArguments, LaunchArguments, SlurmJobArguments>;

/// The command, or nothing when help or the version was asked for, which is then printed to stdout. Throws a usage
/// Error for everything else.
[[nodiscard]] std::optional<Command> parse_command_line(int argc, const char* const* argv);

/// Parses the command line and runs the command, with MPI where it needs ranks. Prints what goes wrong, once for
/// all ranks where they all know it, and returns the exit code.
int run_cli(int argc, char** argv);

/// "a,[1,2],\"x,y\"" -> the three values: separators within brackets, braces and quotes do not separate.
[[nodiscard]] std::vector<std::string> split_values(const std::string& text, char separator = ',');

}  // namespace convoy
