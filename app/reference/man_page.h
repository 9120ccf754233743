// SPDX-License-Identifier: Apache-2.0
//
// Man pages in the macros of man(7): convoy(1), one for each command, and the config keys as convoy-config(5).
#pragma once

#include <string>
#include <vector>

#include "app/config/config_keys.h"
#include "app/reference/command_table.h"

namespace convoy::reference {

/// convoy.1.
[[nodiscard]] std::string program_page(const std::vector<Command>& commands, const Names& names);
/// convoy-COMMAND.1. The list of config keys below the help of a command is left out: it is a page of its own.
[[nodiscard]] std::string command_page(const Command& command);
/// convoy-config.5.
[[nodiscard]] std::string config_page(const std::vector<ConfigSection>& sections);

}  // namespace convoy::reference
