// SPDX-License-Identifier: Apache-2.0
//
// Keys of TOML that its parser is not given, since it takes them apart by recursion.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace convoy {

constexpr std::size_t kMostKeyParts = 100;

/// The first line, from 1, with a dotted key or a header of more than kMostKeyParts parts; 0: there is none.
[[nodiscard]] inline std::size_t line_of_deep_key(std::string_view text) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end), key = line.substr(0, line.find('='));
    const std::size_t begin = line.find_first_not_of(" \t");
    const bool comment = begin != std::string_view::npos && line[begin] == '#';
    const bool has_key = !comment && (key.size() < line.size() || key.find('[') != std::string_view::npos);
    if (has_key && static_cast<std::size_t>(std::count(key.begin(), key.end(), '.')) >= kMostKeyParts) return number;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}

}  // namespace convoy
