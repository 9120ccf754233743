// SPDX-License-Identifier: Apache-2.0
//
// Folders that a run makes for itself.
#pragma once

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace convoy {

/// std::filesystem::create_directories(). That counts a parent which the system cannot look at as missing (ENOENT):
/// another try tells more.
[[nodiscard]] inline std::error_code create_folders(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error.value() == ENOENT) std::filesystem::create_directories(path, error);
  return error;
}

}  // namespace convoy
