// SPDX-License-Identifier: Apache-2.0
//
// Files of results that an option of a command names.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/files/atomic_file.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

/// Writes the file whole or not at all. Errors begin with the option ("--json"); a path that is wrong is a usage Error.
inline void write_result(const char* option, const std::string& path, std::span<const std::byte> bytes) {
  try {
    write_file_atomically(path, bytes);
  } catch (const SystemError& error) {
    fail_as(error, std::string(option) + ": " + error.what());
  } catch (const Error& error) {
    fail_usage("{}: {}", option, error.what());
  }
}

}  // namespace convoy
