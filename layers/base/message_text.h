// SPDX-License-Identifier: Apache-2.0
//
// Text as it may be shown: names of files, classes and data sets come from others, and a terminal obeys control
// characters in them. Used where text is printed or logged, not where it is made.
#pragma once

#include <string>
#include <string_view>

namespace convoy {

/// The text with each control character (C0, DEL, C1 and the marks that change the direction of writing) and each byte
/// that is not UTF-8 as "\x1b". The ends of lines stay.
[[nodiscard]] std::string without_controls(std::string_view text);

/// The same for a message, whose first line has a head in front of it ("convoy: error: "): further lines begin with a
/// space, so that none of them looks like a message of its own.
[[nodiscard]] std::string message_text(std::string_view text);

/// The same for a name within a line, without ends of lines.
[[nodiscard]] std::string name_text(std::string_view text);

}  // namespace convoy
