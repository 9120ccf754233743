// SPDX-License-Identifier: Apache-2.0
//
// Whether a file of results could be written, asked before the work that it is to hold.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

/// Throws an Error that begins with the option ("--json") if `path` is a folder, or its folder is not there or may not
/// be written. An empty path is no file. Writes nothing.
inline void check_result_path(const char* option, const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) fail_usage("{}: {} is a folder (name the file that is to be written)", option, path);
  if (fs::exists(status) && !fs::is_regular_file(status)) return;  // a device or a pipe
  const fs::path target = fs::exists(status) ? fs::canonical(path, error) : fs::path(path);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (::access((folder / ".").c_str(), W_OK | X_OK) != 0) {
    fail_system(errno, "{}: cannot write {}: {}", option, path, std::strerror(errno));
  }
}

}  // namespace convoy
