// SPDX-License-Identifier: Apache-2.0
//
// Whether something is there, told apart from whether the system can look.
#pragma once

#include <filesystem>
#include <system_error>

#include "layers/base/system_error.h"

namespace convoy {

/// std::filesystem::status(). Throws a SystemError where that does not know: the folder may not be searched, the disk
/// or file server fails.
[[nodiscard]] inline std::filesystem::file_status status_of(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none) {
    fail_system(error.value(), "cannot look at {}: {}", path.string(), error.message());
  }
  return status;
}

/// The same of `name` in `folder`, which the message names: the user has.
[[nodiscard]] inline std::filesystem::file_status status_in(const std::filesystem::path& folder, const char* name) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(folder / name, error);
  if (status.type() == std::filesystem::file_type::none) {
    fail_system(error.value(), "cannot read {}: {}", folder.string(), error.message());
  }
  return status;
}

}  // namespace convoy
