// SPDX-License-Identifier: Apache-2.0
//
// The command lines of the commands that use a trained model or watch one train, and what all commands that take a
// config have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "app/commands/commands.h"

namespace convoy {

/// CONFIG and --set.
void add_config(CLI::App* command, std::string& config, std::vector<std::string>& overrides);

CLI::App* add_eval_command(CLI::App& app, EvalArguments& eval);
CLI::App* add_predict_command(CLI::App& app, PredictArguments& predict);
CLI::App* add_watch_command(CLI::App& app, WatchArguments& watch);

}  // namespace convoy
