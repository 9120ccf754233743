// SPDX-License-Identifier: Apache-2.0
#include "app/reference/man_page.h"

#include <cctype>
#include <cstddef>

#include <fmt/format.h>

#include "app/base/version.h"

namespace convoy::reference {

namespace {

/// Text as troff takes it: no escapes, no requests, hyphens that can be copied into a shell.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool starts = result.empty() || result.back() == '\n';
    if (starts && (c == '.' || c == '\'')) result += "\\&";
    switch (c) {
      case '\\': result += "\\e"; break;
      case '-': result += "\\-"; break;
      case '~': result += "\\(ti"; break;
      case '^': result += "\\(ha"; break;
      case '`': result += "\\(ga"; break;
      case '\'': result += "\\(aq"; break;
      default: result += c;
    }
  }
  return result;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  return fmt::format("{}", fmt::join(words, between));
}

std::string title(const std::string& name, int section, const std::string& help) {
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return fmt::format(
      ".\\\" Generated from the definition of the command line: do not edit.\n.TH {} {} \"\" \"convoy {}\" \"{}\"\n"
      ".nh\n.ad l\n.SH NAME\n{} \\- {}\n",
      roff(upper), section, program_version(), section == 1 ? "User Commands" : "File Formats", roff(name), roff(help));
}

std::string paragraph(const std::string& text) { return ".PP\n" + roff(text) + "\n"; }

// A tagged paragraph; `tag` is troff already.
std::string item(const std::string& tag, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", tag, roff(text));
}

std::string code(const std::string& lines) { return ".PP\n.nf\n.RS\n" + roff(lines) + "\n.RE\n.fi\n"; }

// What a value may be, what it is by default, and what goes with it.
std::string conditions(const Option& option) {
  std::vector<std::string> parts;
  if (option.required) parts.emplace_back("required");
  if (!option.choices.empty()) parts.push_back("one of " + joined(option.choices, ", "));
  if (!option.range.empty()) parts.push_back(option.range);
  if (!option.fallback.empty()) parts.push_back("default: " + option.fallback);
  if (!option.needs.empty()) parts.push_back("only with " + joined(option.needs, ", "));
  if (!option.excludes.empty()) parts.push_back("not with " + joined(option.excludes, ", "));
  return parts.empty() ? "" : " (" + joined(parts, "; ") + ")";
}

std::string tag_of(const Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(bold(name));
  const std::string value = option.value.empty() ? "" : " " + italic(option.value);
  return joined(names, ", ") + value;
}

std::string options_section(const Command& command) {
  std::string text = ".SH OPTIONS\n";
  for (const Option& option : command.options) text += item(tag_of(option), option.help + conditions(option));
  return text;
}

std::string synopsis(const Command& command) {
  std::string text = fmt::format(".SH SYNOPSIS\n{} {}", bold("convoy"), bold(command.name));
  for (const Option& option : command.options) {
    const bool help = option.names.back() == "--help";
    if (help) continue;
    const std::string value = option.value.empty() ? "" : " " + italic(option.value);
    const std::string one = bold(option.names.back()) + value;
    text += "\n" + (option.required ? one : "[" + one + "]");
    if (option.repeated && !value.ends_with("...\\fR")) text += " ...\\&";
  }
  for (const Option& positional : command.positionals) {
    text += "\n" + italic(positional.names.front()) + (positional.repeated ? " ...\\&" : "");
  }
  if (command.name == "launch") text += "\n" + bold("--") + " " + bold("train") + " " + italic("CONFIG") + " ...\\&";
  return text + "\n";
}

std::string see_also(const std::vector<std::string>& pages) {
  std::vector<std::string> references;
  references.reserve(pages.size());
  for (const std::string& page : pages) {
    references.push_back(bold(page.substr(0, page.find('('))) + roff(page.substr(page.find('('))));
  }
  return ".SH SEE ALSO\n" + joined(references, ",\n") + "\n";
}

}  // namespace

std::string program_page(const std::vector<Command>& commands, const Names& names) {
  const Command& program = commands.front();
  std::string text = title("convoy", 1, "train neural networks on one machine or many");
  text += fmt::format(".SH SYNOPSIS\n{} {}\n[{}] ...\n.br\n{} {}\n.br\n{} {}\n", bold("convoy"), italic("COMMAND"),
                      italic("OPTION"), bold("mpirun -n"),
                      italic("RANKS") + " " + bold("convoy train") + " " + italic("CONFIG"), bold("convoy"),
                      bold("--version"));
  text += ".SH DESCRIPTION\n" + roff(program.help) + "\n";
  text += paragraph(
      "A run is one TOML file, CONFIG. Its keys are in convoy-config(5). Several ranks are started by mpirun(1), "
      "srun(1) or "
      "convoy-launch(1). The same command resumes a run that was stopped or killed.");
  text += ".SH COMMANDS\n";
  std::vector<std::string> pages = {"convoy-config(5)"};
  for (std::size_t i = 1; i < commands.size(); ++i) {
    pages.push_back("convoy-" + commands[i].name + "(1)");
    text += item(bold(commands[i].name), commands[i].help + "; see " + pages.back());
  }
  text += options_section(program);
  text +=
      ".SH EXAMPLES\n" + roff("Where CONFIG is no file, it is the name of an example that comes with convoy:") + "\n";
  text += code(joined(names.examples, "\n"));
  text += paragraph("Train one of them on two ranks:") + code("mpirun -n 2 convoy train quickstart");
  text += ".SH EXIT STATUS\n" + item(bold("0"), "done") + item(bold("1"), "failed during the run") +
          item(bold("2"), "bad usage, config or input, found before training; a retry cannot help") +
          item(bold("75"), "stopped early by a signal or time limit, with a checkpoint; the same command resumes") +
          item(bold("130"), "convoy launch was interrupted with a second Ctrl-C");
  text += ".SH FILES\n" +
          item(italic("runs/NAME"),
               "the folder of a run: config.toml, log.txt, metrics.jsonl, TensorBoard events and checkpoints") +
          item(italic("PREFIX/share/convoy"), "example configs, stated machines, scripts and Slurm files") +
          item(italic("PREFIX/share/doc/convoy"), "the documentation");
  text += ".SH ENVIRONMENT\n" + item(bold("NO_COLOR"), "no colour on a terminal") +
          item(bold("SLURM_JOB_ID"), "in a Slurm job: the run stops with a checkpoint before the end of the job") +
          item(bold("OMP_NUM_THREADS"), "is not read: device.threads sets the threads of a rank");
  return text + see_also(pages);
}

std::string command_page(const Command& command) {
  std::string text = title("convoy-" + command.name, 1, command.help) + synopsis(command);
  if (!command.positionals.empty()) {
    text += ".SH ARGUMENTS\n";
    for (const Option& positional : command.positionals) {
      text += item(italic(positional.names.front()), positional.help);
    }
  }
  text += options_section(command);
  const bool has_keys = command.footer.find("\n[run]") != std::string::npos;
  if (!command.footer.empty() && !has_keys) text += ".SH NOTES\n" + roff(command.footer) + "\n";
  return text + see_also({"convoy(1)", "convoy-config(5)"});
}

std::string config_page(const std::vector<ConfigSection>& sections) {
  std::string text = title("convoy-config", 5, "the keys of a convoy config");
  text += ".SH DESCRIPTION\n" +
          roff(
              "A run is a TOML file. --set SECTION.KEY=VALUE on the command line wins over the file. "
              "convoy-check(1) prints all keys of a config with the origin of each value. A key that "
              "is not given has the default in parentheses.") +
          "\n";
  for (const ConfigSection& section : sections) {
    text += fmt::format(".SH {}\n{}\n", roff(section.header()), roff(section.help));
    for (const ConfigKey& key : section.keys) {
      const std::string fallback = key.fallback.empty() ? "" : " (" + roff(key.fallback) + ")";
      text += item(bold(key.name) + fallback, key.type + "; " + key.help);
    }
  }
  return text + see_also({"convoy(1)", "convoy-check(1)"});
}

}  // namespace convoy::reference
