// SPDX-License-Identifier: Apache-2.0
//
// Specifications for zsh's _arguments.
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "app/reference/completion.h"

namespace convoy::reference {

namespace {

// Within single quotes; `special` are characters that mean something to _arguments.
std::string quoted(const std::string& text, const std::string& special) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
      continue;
    }
    if (special.find(c) != std::string::npos) result += '\\';
    result += c;
  }
  return result;
}

std::string list(const std::vector<std::string>& words) { return fmt::format("({})", fmt::join(words, " ")); }

std::string action_of(const Option& option) {
  switch (option.kind) {
    case ValueKind::kConfig: return "_convoy_configs";
    case ValueKind::kInput: return "_convoy_inputs";
    case ValueKind::kMachine: return "_convoy_machines";
    case ValueKind::kOverride: return "_convoy_overrides";
    case ValueKind::kFile: return "_files";
    case ValueKind::kText: break;
  }
  return option.choices.empty() ? " " : list(option.choices);
}

// "FILE:_files" behind a specification.
std::string value_of(const Option& option) {
  if (option.value.empty()) return "";
  return fmt::format(":{}:{}", quoted(option.value, ":\\[]"), quoted(action_of(option), ""));
}

std::string option_lines(const Command& command) {
  std::string text;
  for (const Option& option : command.options) {
    std::string exclusive;
    if (option.repeated) {
      exclusive = "*";
    } else {
      std::vector<std::string> others = option.names;
      others.insert(others.end(), option.excludes.begin(), option.excludes.end());
      exclusive = option.names.back() == "--help" ? "(- *)" : list(others);
    }
    for (const std::string& name : option.names) {
      const std::string form = option.value.empty() ? name : name.starts_with("--") ? name + "=" : name + "+";
      text += fmt::format(" \\\n        '{}{}[{}]{}'", exclusive, form, quoted(option.help, "[]\\"), value_of(option));
    }
  }
  return text;
}

std::string positional_lines(const Command& command) {
  std::string text;
  for (std::size_t i = 0; i < command.positionals.size(); ++i) {
    const Option& positional = command.positionals[i];
    const std::string place = positional.repeated ? "*" : std::to_string(i + 1);
    text += fmt::format(" \\\n        '{}:{}:{}'", place, quoted(positional.names.front(), ":\\[]"),
                        quoted(action_of(positional), ""));
  }
  return text;
}

}  // namespace

std::string zsh_completion(const CompletionInput& input) {
  std::string commands, keys, choices, cases;
  for (const Command& command : input.commands) {
    if (command.name.empty()) continue;
    commands += fmt::format("    '{}:{}'\n", command.name, quoted(command.help, ":\\"));
    cases += fmt::format("    {})\n      _arguments -s -S{}{}\n      ;;\n", command.name, option_lines(command),
                         positional_lines(command));
  }
  for (const ConfigSection& section : input.sections) {
    if (section.tables) continue;
    for (const ConfigKey& key : section.keys) {
      const std::string name = section.name + "." + key.name;
      keys += fmt::format("    '{}:{}'\n", name, quoted(key.help, ":\\"));
      if (!key.choices.empty())
        choices += fmt::format("      {}) compadd -- {} ;;\n", name, fmt::join(key.choices, " "));
    }
  }
  const auto files = [](const char* name, const char* pattern, const std::vector<std::string>& words) {
    return fmt::format("{}() {{\n  _alternative 'examples:example:({})' 'files:file:_files{}'\n}}\n\n", name,
                       fmt::join(words, " "), pattern);
  };
  return "#compdef convoy\n# Generated from the definition of the command line: do not edit.\n\n_convoy_commands() {\n"
         "  local -a commands=(\n" +
         commands + "  )\n  _describe command commands\n}\n\n" +
         files("_convoy_configs", " -g \"*.toml\"", input.names.examples) +
         files("_convoy_inputs", "", input.names.examples) +
         files("_convoy_machines", " -g \"*.toml\"", input.names.machines) +
         "_convoy_overrides() {\n  if compset -P '*='; then\n    case ${${IPREFIX%=}##*=} in\n" + choices +
         "    esac\n    return\n  fi\n  local -a keys=(\n" + keys +
         "  )\n  _describe key keys -S =\n}\n\n"
         "_convoy() {\n  local curcontext=$curcontext state line\n  typeset -A opt_args\n  local "
         "dashes=${words[(i)--]}\n"
         "  if [[ $words[2] == launch ]] && ((dashes < CURRENT)); then # what launch starts is a command of its own\n"
         "    words=(convoy ${words[dashes + 1, -1]})\n    ((CURRENT -= dashes - 1))\n  fi\n"
         "  _arguments -C" +
         option_lines(input.commands.front()) +
         " \\\n        '1:command:_convoy_commands' '*::argument:->arguments' && return\n"
         "  [[ $state == arguments ]] || return\n  case $line[1] in\n" +
         cases + "  esac\n}\n\n_convoy \"$@\"\n";
}

}  // namespace convoy::reference
