// SPDX-License-Identifier: Apache-2.0
#include "app/reference/command_table.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <sstream>

namespace convoy::reference {

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

// CLI11 writes "N:INT in [1 - 1000]", "TEXT:{auto,mpirun}": the value's name, then the check.
void read_type(const std::string& type, Option& option) {
  const std::size_t colon = type.find(':');
  option.value = type.substr(0, colon);
  if (colon == std::string::npos) return;
  std::string check = type.substr(colon + 1);
  if (check.starts_with('{') && check.ends_with('}')) {
    option.choices = split(check.substr(1, check.size() - 2), ',');
    return;
  }
  replace(check, "INT in [", "an integer from ");
  replace(check, " - ", " to ");
  replace(check, "]", "");
  option.range = check;
}

ValueKind kind_of(const Option& option) {
  const std::string& name = option.names.back();
  if (name == "CONFIG") return ValueKind::kConfig;
  if (name == "FILE") return ValueKind::kInput;  // of inspect
  if (name == "--machine") return ValueKind::kMachine;
  if (option.value.starts_with("KEY=")) return ValueKind::kOverride;
  const bool positional = !name.starts_with('-');
  return positional || option.value == "FILE" ? ValueKind::kFile : ValueKind::kText;
}

std::vector<std::string> names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::sort(names.begin(), names.end());  // the set has the order of addresses
  return names;
}

Option option_of(const CLI::Option& from) {
  Option option;
  if (from.get_positional()) {
    option.names = {from.get_name(true)};
  } else {
    for (const std::string& name : from.get_snames()) option.names.push_back("-" + name);
    for (const std::string& name : from.get_lnames()) option.names.push_back("--" + name);
  }
  option.help = from.get_description();
  if (from.get_items_expected_max() > 0) {
    read_type(from.get_type_name(), option);
    option.fallback = from.get_default_str();
    option.kind = kind_of(option);
  }
  option.excludes = names_of(from.get_excludes());
  option.needs = names_of(from.get_needs());
  option.required = from.get_required();
  option.repeated = from.get_items_expected_max() > 1;
  return option;
}

Command command_of(const CLI::App& app) {
  Command command;
  command.name = app.get_parent() == nullptr ? "" : app.get_name();
  command.help = app.get_description();
  command.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    (option->get_positional() ? command.positionals : command.options).push_back(option_of(*option));
  }
  return command;
}

}  // namespace

std::vector<Command> command_table(const CLI::App& app, const Names& names) {
  std::vector<Command> commands = {command_of(app)};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command_of(*command));
  }
  for (Command& command : commands) {
    for (Option& option : command.options) {
      if (command.name == "schedule" && option.names.back() == "--name") option.choices = names.schedules;
      if (option.names.back() == "--checkpoint") option.choices = {"newest", "best"};
    }
  }
  return commands;
}

}  // namespace convoy::reference
