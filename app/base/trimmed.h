// SPDX-License-Identifier: Apache-2.0
//
// Text without blanks at its ends.
#pragma once

#include <cstddef>
#include <string_view>

namespace convoy {

/// `text` without the characters of `blanks` at both ends: a view of the same memory.
[[nodiscard]] inline std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n") {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

}  // namespace convoy
