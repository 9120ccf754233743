// SPDX-License-Identifier: Apache-2.0
//
// The command line of `convoy plan`.
#pragma once

#include <CLI/CLI.hpp>

#include "app/commands/commands.h"

namespace convoy {

CLI::App* add_plan_command(CLI::App& app, PlanArguments& plan);

/// After parsing: throws a usage Error for arguments that ask for nothing.
[[nodiscard]] PlanArguments finish_plan(PlanArguments plan);

}  // namespace convoy
