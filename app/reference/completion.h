// SPDX-License-Identifier: Apache-2.0
//
// Completion of the command line in shells: commands, options, their values, config keys after --set, and the names of
// examples. Pure functions. The scripts need nothing but the shell.
#pragma once

#include <string>
#include <vector>

#include "app/config/config_keys.h"
#include "app/reference/command_table.h"

namespace convoy::reference {

struct CompletionInput {
  std::vector<Command> commands;
  std::vector<ConfigSection> sections;
  Names names;
};

/// For bash-completion/completions/convoy; also to be sourced.
[[nodiscard]] std::string bash_completion(const CompletionInput& input);
/// For zsh/site-functions/_convoy.
[[nodiscard]] std::string zsh_completion(const CompletionInput& input);
/// For fish/vendor_completions.d/convoy.fish.
[[nodiscard]] std::string fish_completion(const CompletionInput& input);

}  // namespace convoy::reference
