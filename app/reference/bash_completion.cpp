// SPDX-License-Identifier: Apache-2.0
//
// One function for bash. Readline splits words at "=" and ":" too (COMP_WORDBREAKS): the function looks at the line
// itself, and gives back what comes after the last "=".
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "app/reference/completion.h"

namespace convoy::reference {

namespace {

std::string words(const std::vector<std::string>& list) { return fmt::format("{}", fmt::join(list, " ")); }

std::string names_of_options(const Command& command) {
  std::vector<std::string> names;
  for (const Option& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return words(names);
}

// The command that completes a value of this kind, with the word in $cur.
std::string action(const Option& option) {
  switch (option.kind) {
    case ValueKind::kConfig: return "_convoy_files \"$examples\" '!*.toml'";
    case ValueKind::kInput: return "_convoy_files \"$examples\"";
    case ValueKind::kMachine: return "_convoy_files \"$machines\" '!*.toml'";
    case ValueKind::kOverride: return "_convoy_override";
    case ValueKind::kFile: return fmt::format("_convoy_files \"{}\"", words(option.choices));
    case ValueKind::kText: break;
  }
  return option.choices.empty() ? ":" : fmt::format("_convoy_words \"{}\"", words(option.choices));
}

constexpr const char* kHelpers = R"bash(
_convoy_words() { COMPREPLY+=($(compgen -W "$1" -- "$cur")); }

# Folders, files (but those that match $2), and the words in $1.
_convoy_files() {
  local file
  while IFS= read -r file; do
    [[ -n $file ]] && COMPREPLY+=("$file")
  done < <({ compgen -d -- "$cur"; compgen -f -X "$2" -- "$cur"; } | sort -u)
  [[ -n $1 ]] && _convoy_words "$1"
  compopt -o filenames 2>/dev/null
}

# KEY=VALUE: the keys, then what a key chooses from.
_convoy_override() {
  if [[ $cur == *=* ]]; then
    local key=${cur%%=*} value
    for value in $(_convoy_choices "$key"); do
      [[ $key=$value == "$cur"* ]] && COMPREPLY+=("$key=$value")
    done
  else
    _convoy_words "$keys"
    compopt -o nospace 2>/dev/null
  fi
}
)bash";

constexpr const char* kMain = R"bash(
_convoy() {
  local cur prev line=${COMP_LINE:0:COMP_POINT} command="" i options positionals values whole
  local -a words=()
  COMPREPLY=()
  read -r -a words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  # What launch starts stands behind "--", as a command of its own.
  for ((i = 2; i < ${#words[@]} - 1; ++i)); do
    [[ ${words[1]} == launch && ${words[i]} == -- ]] && words=(convoy "${words[@]:i+1}") && break
  done
  cur=${words[${#words[@]} - 1]} prev=${words[${#words[@]} - 2]} whole=$cur
  if ((${#words[@]} > 2)); then command=${words[1]}; fi
  _convoy_command "$command" || return 0
  if [[ $cur == --*=* ]]; then # --set=KEY=VALUE
    prev=${cur%%=*} cur=${cur#*=}
    _convoy_value "$command" "$prev"
    COMPREPLY=("${COMPREPLY[@]/#/$prev=}")
  elif [[ " $values " == *" $prev "* ]]; then
    _convoy_value "$command" "$prev"
  elif [[ $cur == -* ]]; then
    _convoy_words "$options"
  elif [[ -z $command ]]; then
    _convoy_words "$commands"
  else
    local given=0
    for ((i = 2; i < ${#words[@]} - 1; ++i)); do
      [[ ${words[i]} != -* && " $values " != *" ${words[i - 1]} "* ]] && ((++given))
    done
    if ((given < positionals)); then _convoy_value "$command" "$given"; else _convoy_words "$options"; fi
  fi
  if [[ $COMP_WORDBREAKS == *=* && $whole == *=* ]]; then
    local before=${whole%"${whole##*=}"}
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
  fi
}
complete -F _convoy convoy
)bash";

}  // namespace

std::string bash_completion(const CompletionInput& input) {
  std::vector<std::string> commands, keys;
  std::string choices;
  for (std::size_t i = 1; i < input.commands.size(); ++i) commands.push_back(input.commands[i].name);
  for (const ConfigSection& section : input.sections) {
    if (section.tables) continue;
    for (const ConfigKey& key : section.keys) {
      keys.push_back(fmt::format("{}.{}=", section.name, key.name));
      if (!key.choices.empty()) {
        choices += fmt::format("    {}.{}) echo \"{}\" ;;\n", section.name, key.name, words(key.choices));
      }
    }
  }
  std::string text = "# bash completion of convoy, generated from the definition of its command line: do not edit.\n";
  text += kHelpers;
  text += "\n_convoy_choices() {\n  case $1 in\n" + choices + "  esac\n}\n";
  // Sets what a command takes: its options, those of them with a value, and how many positionals.
  text += "\n_convoy_command() {\n  commands=\"" + words(commands) + "\"\n  case $1 in\n";
  for (const Command& command : input.commands) {
    std::vector<std::string> valued;
    for (const Option& option : command.options) {
      if (!option.value.empty()) valued.insert(valued.end(), option.names.begin(), option.names.end());
    }
    const bool repeated = !command.positionals.empty() && command.positionals.back().repeated;
    text += fmt::format("    \"{}\") options=\"{}\" values=\"{}\" positionals={} ;;\n", command.name,
                        names_of_options(command), words(valued), repeated ? 1000 : command.positionals.size());
  }
  text += "    *) return 1 ;;\n  esac\n}\n";
  text +=
      "\n# Completes the value of option $2 of command $1, or its positional number $2.\n_convoy_value() {\n  local "
      "examples=\"" +
      words(input.names.examples) + "\" machines=\"" + words(input.names.machines) + "\"\n  local keys=\"" +
      words(keys) + "\"\n  case $1:$2 in\n";
  for (const Command& command : input.commands) {
    for (std::size_t i = 0; i < command.positionals.size(); ++i) {
      const Option& positional = command.positionals[i];
      const std::string number = positional.repeated ? "[0-9]*" : std::to_string(i);
      text += fmt::format("    {}:{}) {} ;;\n", command.name, number, action(positional));
    }
    for (const Option& option : command.options) {
      if (option.value.empty() || action(option) == ":") continue;
      for (const std::string& name : option.names) {
        text += fmt::format("    {}:{}) {} ;;\n", command.name, name, action(option));
      }
    }
  }
  return text + "  esac\n}\n" + kMain;
}

}  // namespace convoy::reference
