// SPDX-License-Identifier: Apache-2.0
//
// The command line as data, taken from its CLI11 definition: what man pages and shell completion are made of.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace convoy::reference {

/// What a shell completes a value with.
enum class ValueKind {
  kText,      ///< nothing
  kFile,      ///< files and folders
  kConfig,    ///< .toml files, folders and the names of examples
  kInput,     ///< files, folders and the names of examples
  kMachine,   ///< .toml files, folders and the names of example machines
  kOverride,  ///< config keys, then their values
};

struct Option {
  std::vector<std::string> names;  ///< "-o", "--output"; of a positional, its name alone
  std::string help;
  std::string value;  ///< "FILE"; empty: a flag
  std::string range;  ///< "an integer from 1 to 1000"; empty: any
  std::string fallback;
  std::vector<std::string> choices;  ///< values; kFile and kText may have some, too
  std::vector<std::string> excludes, needs;
  ValueKind kind = ValueKind::kText;
  bool required = false, repeated = false;
};

struct Command {
  std::string name;  ///< empty: the program itself
  std::string help;
  std::vector<Option> positionals, options;
  std::string footer;
};

/// What goes beyond the definition of the command line.
struct Names {
  std::vector<std::string> examples, machines;  ///< configs and machines that are found by name
  std::vector<std::string> schedules;
};

/// The program itself, then each command.
[[nodiscard]] std::vector<Command> command_table(const CLI::App& app, const Names& names);

}  // namespace convoy::reference
