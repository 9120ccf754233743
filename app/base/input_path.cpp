// SPDX-License-Identifier: Apache-2.0
#include "app/base/input_path.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <system_error>
#include <vector>

#include "io/data/shards.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path, InputForm form) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none && !is_input_fault(error.value())) {
    fail_system(error.value(), "cannot look for \"{}\": {}", path.string(), error.message());
  }
  return fs::exists(status) || (form == InputForm::kFileOrShards && !matching_shards(path.string()).empty());
}

// What is wrong with what is there; empty: nothing.
std::string problem_of(const std::string& path, InputForm form) {
  std::error_code ignored;
  if (form != InputForm::kFileOrFolder && fs::is_directory(path, ignored)) {
    return fmt::format("\"{}\" is a folder (must be a file)", path);
  }
  std::vector<std::string> files = {path};
  try {
    if (form == InputForm::kFileOrShards && is_shard_pattern(path)) files = find_shards(path);
  } catch (const Error& error) {
    return error.what();
  }
  for (const std::string& file : files) {
    if (access(file.c_str(), R_OK) != 0) {
      return fmt::format("\"{}\" may not be read by this user (see its permissions)", file);
    }
  }
  return "";
}

}  // namespace

InputPath find_input(const std::string& written, const std::string& config, InputForm form) {
  const std::size_t colon = written.rfind(":/");
  const std::string file = written.substr(0, colon);
  const std::string group = colon == std::string::npos ? "" : written.substr(colon);
  const fs::path folder = fs::path(config).parent_path();

  fs::path found = file;
  if (!is_there(found, form) && found.is_relative() && is_there(folder / file, form)) found = folder / file;
  if (!is_there(found, form)) {
    if (fs::path(file).is_absolute() || folder.empty()) return {"", fmt::format("there is no file \"{}\"", file)};
    return {"", fmt::format("there is no file \"{}\" (looked in the current folder and in {})", file, folder.string())};
  }
  const std::string problem = problem_of(found.string(), form);
  return problem.empty() ? InputPath{found.string() + group, ""} : InputPath{"", problem};
}

}  // namespace convoy
