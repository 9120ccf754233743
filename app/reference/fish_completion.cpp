// SPDX-License-Identifier: Apache-2.0
//
// Rules for fish's complete.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "app/reference/completion.h"

namespace convoy::reference {

namespace {

std::string quote(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

// What is offered, and whether files are as well.
std::string fish_value(const Option& option) {
  switch (option.kind) {
    case ValueKind::kConfig:
    case ValueKind::kInput: return " -r -F -a '(__convoy_examples)'";
    case ValueKind::kMachine: return " -r -F -a '(__convoy_machines)'";
    case ValueKind::kOverride: return " -x -a '(__convoy_overrides)'";
    case ValueKind::kFile:
      return option.choices.empty() ? " -r -F" : fmt::format(" -r -F -a '{}'", fmt::join(option.choices, " "));
    case ValueKind::kText: break;
  }
  return option.choices.empty() ? " -x" : fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
}

std::string names_function(const char* name, const std::vector<std::string>& words) {
  return fmt::format("function {}\n  printf '%s\\n' {}\nend\n\n", name, fmt::join(words, " "));
}

}  // namespace

std::string fish_completion(const CompletionInput& input) {
  std::string keys, choices, rules;
  for (const ConfigSection& section : input.sections) {
    if (section.tables) continue;
    for (const ConfigKey& key : section.keys) {
      keys += fmt::format("  printf '%s=\\t%s\\n' {}.{} {}\n", section.name, key.name, quote(key.help));
      if (key.choices.empty()) continue;
      choices += fmt::format("      case {}.{}\n        printf \"$key=%s\\n\" {}\n", section.name, key.name,
                             fmt::join(key.choices, " "));
    }
  }
  for (const Command& command : input.commands) {
    const std::string where =
        command.name.empty() ? "__fish_use_subcommand" : "__fish_seen_subcommand_from " + command.name;
    if (!command.name.empty()) {
      rules +=
          fmt::format("complete -c convoy -n __fish_use_subcommand -a {} -d {}\n", command.name, quote(command.help));
    }
    for (const Option& option : command.options) {
      std::string names;
      for (const std::string& name : option.names) {
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      rules += fmt::format("complete -c convoy -n '{}'{}{} -d {}\n", where, names,
                           option.value.empty() ? "" : fish_value(option), quote(option.help));
    }
    for (const Option& positional : command.positionals) {
      const bool names = positional.kind == ValueKind::kConfig || positional.kind == ValueKind::kInput;
      rules += fmt::format("complete -c convoy -n '{}' -F{}\n", where, names ? " -a '(__convoy_examples)'" : "");
    }
  }
  return "# Generated from the definition of the command line: do not edit.\n\n" +
         names_function("__convoy_examples", input.names.examples) +
         names_function("__convoy_machines", input.names.machines) +
         "function __convoy_overrides\n  set -l token (string replace -r '^--[a-z]+=' '' -- (commandline -ct))\n"
         "  set -l key (string split -m 1 = -- $token)[1]\n  if string match -q '*=*' -- $token\n    switch "
         "\"$key\"\n" +
         choices + "    end\n    return\n  end\n" + keys + "end\n\ncomplete -c convoy -f\n" + rules;
}

}  // namespace convoy::reference
