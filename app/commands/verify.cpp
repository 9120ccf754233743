// SPDX-License-Identifier: Apache-2.0
//
// convoy verify: reads the files of runs back and says which are what was written.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/write_result.h"
#include "app/verify/file_check.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"

namespace convoy {

namespace {

// The path is told once.
std::string line_of(const FileCheck& check) {
  std::string text = check.text;
  for (const std::string& start : {check.path + ": ", check.path + ":"}) {
    if (text.starts_with(start)) text = text.substr(start.size());
  }
  return fmt::format("{:<8}  {}", state_word(check.state), name_text(fmt::format("{}: {}", check.path, text)));
}

void write_json(const std::string& path, const std::vector<FileCheck>& checks) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const FileCheck& check : checks) {
    files.push_back({{"path", check.path}, {"state", state_word(check.state)}, {"text", check.text}});
  }
  const std::string text =
      nlohmann::ordered_json{{"files", files}}.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  write_result("--json", path, std::as_bytes(std::span(text)));
}

}  // namespace

int verify_command(const VerifyArguments& arguments) {
  std::vector<std::string> read;
  for (const std::string& path : arguments.paths) {
    std::error_code error;
    const bool folder = std::filesystem::is_directory(path, error);
    for (std::string& file : folder ? files_of_run(path) : std::vector{path}) read.push_back(std::move(file));
  }
  check_result_path("--json", arguments.json);
  check_results({{"--json", arguments.json}}, read);
  std::vector<FileCheck> checks;
  for (const std::string& path : arguments.paths) {
    for (FileCheck& check : check_path(path)) {
      std::cout << line_of(check) << "\n" << std::flush;
      checks.push_back(std::move(check));
    }
  }
  if (!arguments.json.empty()) write_json(arguments.json, checks);
  const auto count = [&](FileState state) {
    return std::count_if(checks.begin(), checks.end(), [&](const FileCheck& check) { return check.state == state; });
  };
  std::cout << fmt::format("{}: {} valid, {} readable without a checksum, {} damaged\n", counted(checks.size(), "file"),
                           count(FileState::kValid), count(FileState::kReadable), count(FileState::kDamaged))
            << std::flush;
  if (const auto bad = count(FileState::kDamaged); bad > 0)
    fail("{} of {} damaged", bad, counted(checks.size(), "file"));
  return 0;
}

}  // namespace convoy
