// SPDX-License-Identifier: Apache-2.0
//
// The nearest known name to a mistyped one, for error messages. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace convoy {

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other
/// (optimal string alignment: no substring is edited twice).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known name nearest to `word`, the first of several equally near; empty when none is near enough to be meant
/// (more than a third of its letters, at least one, differ). '-' and '_' and letter case count as equal.
[[nodiscard]] std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

/// "a, b, c".
[[nodiscard]] std::string join(std::span<const std::string_view> names);

}  // namespace convoy
