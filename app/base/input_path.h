// SPDX-License-Identifier: Apache-2.0
//
// Finds the files that a config names. Looks at the file system, opens nothing but to see that it may.
#pragma once

#include <string>

#include "layers/base/options.h"

namespace convoy {

/// A file that was found, or why not.
struct InputPath {
  std::string path;     ///< as written, or below the config file's folder; with the group, if one was named
  std::string problem;  ///< empty when found; else what is wrong (what would be right)
};

/// Looks for `written`, FILE or FILE:/GROUP, from the current folder and, if it is not there, from the folder of the
/// config file `config`. Of shards (io/data/shards.h) it is PATTERN or PATTERN:/GROUP, and they must be a whole set.
/// Throws a SystemError if the system cannot look.
[[nodiscard]] InputPath find_input(const std::string& written, const std::string& config, InputForm form);

}  // namespace convoy
