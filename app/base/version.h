// SPDX-License-Identifier: Apache-2.0
//
// Which convoy this is, and what it stands on.
#pragma once

#include <string>

namespace convoy {

/// "0.1.0".
[[nodiscard]] std::string program_version();

/// "GCC 12.2.0" or "Clang 14.0.6".
[[nodiscard]] std::string compiler_version();

/// The program, its compiler and its libraries, one to a line, as `convoy --version` prints them.
[[nodiscard]] std::string version_text();

}  // namespace convoy
