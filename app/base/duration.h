// SPDX-License-Identifier: Apache-2.0
//
// Times in configs and progress lines, as HH:MM:SS. Pure functions.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace convoy {

/// "26:30:00" -> 95400 s. Hours may have one to six digits; minutes and seconds have two, below 60. Nothing for other
/// texts, or for no time at all.
[[nodiscard]] std::optional<std::chrono::seconds> parse_duration(std::string_view text);

/// The inverse; hours have at least two digits.
[[nodiscard]] std::string format_duration(std::chrono::seconds duration);

}  // namespace convoy
