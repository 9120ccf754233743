// SPDX-License-Identifier: Apache-2.0
//
// What `convoy --version` prints.
#pragma once

#include <string>

namespace convoy {

/// The versions of the program, its compiler and its libraries, one a line.
[[nodiscard]] std::string version_text();

}  // namespace convoy
