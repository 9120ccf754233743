// SPDX-License-Identifier: Apache-2.0
#include "app/reference/generate.h"

#include <filesystem>
#include <fstream>
#include <ios>
#include <ostream>
#include <system_error>

#include "app/base/examples.h"
#include "app/reference/completion.h"
#include "app/reference/man_page.h"
#include "layers/base/error.h"
#include "parallel/schedule/schedule.h"

namespace convoy::reference {

namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) fail_usage("generate: {} cannot be written (name a folder that can be)", path.string());
}

}  // namespace

void generate(const CLI::App& app, const std::string& examples, const std::string& folder) {
  CompletionInput input;
  input.names = {example_names(examples, ExampleKind::kConfig),
                 example_names(examples, ExampleKind::kMachine),
                 {schedule_names().begin(), schedule_names().end()}};
  input.commands = command_table(app, input.names);
  input.sections = config_key_table();
  const std::filesystem::path root = folder, man1 = root / "man" / "man1";
  write(man1 / "convoy.1", program_page(input.commands, input.names));
  for (const Command& command : input.commands) {
    if (!command.name.empty()) write(man1 / fmt::format("convoy-{}.1", command.name), command_page(command));
  }
  write(root / "man" / "man5" / "convoy-config.5", config_page(input.sections));
  write(root / "bash-completion" / "completions" / "convoy", bash_completion(input));
  write(root / "zsh" / "site-functions" / "_convoy", zsh_completion(input));
  write(root / "fish" / "vendor_completions.d" / "convoy.fish", fish_completion(input));
}

}  // namespace convoy::reference
