// SPDX-License-Identifier: Apache-2.0
//
// The version of this program and of its compiler.
#pragma once

#include <string>

namespace convoy {

/// "0.1.0".
[[nodiscard]] std::string program_version();

/// "GCC 12.2.0" or "Clang 14.0.6".
[[nodiscard]] std::string compiler_version();

}  // namespace convoy
