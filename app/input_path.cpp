// SPDX-License-Identifier: Apache-2.0
#include "app/input_path.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace convoy {

InputPath find_input(const std::string& written, const std::string& config, bool may_be_folder) {
  namespace fs = std::filesystem;
  const std::size_t colon = written.rfind(":/");
  const std::string file = written.substr(0, colon);
  const std::string group = colon == std::string::npos ? "" : written.substr(colon);
  const fs::path folder = fs::path(config).parent_path();
  std::error_code ignored;

  fs::path found = file;
  if (!fs::exists(found, ignored) && found.is_relative() && fs::exists(folder / file, ignored)) found = folder / file;
  if (!fs::exists(found, ignored)) {
    if (fs::path(file).is_absolute() || folder.empty()) return {"", fmt::format("there is no file \"{}\"", file)};
    return {"", fmt::format("there is no file \"{}\" (looked in the current folder and in {})", file, folder.string())};
  }
  if (!may_be_folder && fs::is_directory(found, ignored))
    return {"", fmt::format("\"{}\" is a folder (must be a file)", found.string())};
  if (access(found.c_str(), R_OK) != 0) {
    return {"", fmt::format("\"{}\" may not be read by this user (see its permissions)", found.string())};
  }
  return {found.string() + group, ""};
}

}  // namespace convoy
