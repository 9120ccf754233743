// SPDX-License-Identifier: Apache-2.0
//
// Whole files as text. Stands on open() and read(), which say why where a C++ stream's buffer throws.
#pragma once

#include <optional>
#include <string>

namespace convoy {

/// Everything in the file; nothing, and the reason in errno, when it cannot be read to its end (it is not there, is a
/// folder, has vanished on the way).
[[nodiscard]] std::optional<std::string> file_text(const std::string& path);

}  // namespace convoy
