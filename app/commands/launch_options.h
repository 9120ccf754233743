// SPDX-License-Identifier: Apache-2.0
//
// The command line of `convoy launch`: its own options before `--`, a training's after it. Relies on CLI11 for the
// former and on the program's own parser for the latter. Invariant: the result names a training, and nodes that can be
// had.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "app/commands/commands.h"

namespace convoy {

/// The options that need more than CLI11 to be understood; filled by the parser, read by finish_launch().
struct LaunchOptions {
  LaunchArguments arguments;
  std::string nodes = "1";
};

/// What was meant by arguments that launch has not: torchrun's spellings, a training without "--" before it. Empty if
/// they mean nothing known.
[[nodiscard]] std::string launch_hint(const std::vector<std::string>& words);

CLI::App* add_launch_command(CLI::App& app, LaunchOptions& options);

/// After parsing. `words` are those behind `--`, and `train` what the program's parser made of them.
[[nodiscard]] LaunchArguments finish_launch(const LaunchOptions& options, std::vector<std::string> words,
                                            const TrainArguments& train);

}  // namespace convoy
