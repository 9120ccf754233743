// SPDX-License-Identifier: Apache-2.0
//
// What the values of options must be beyond CLI11's own checks, which let NaN, wrapped numbers and empty words pass.
// Relies on CLI11. Invariant: no check changes a value.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace convoy {

/// A finite number from `low` to `high`; `range` is what --help says about it.
[[nodiscard]] CLI::Validator number_between(double low, double high, const std::string& range);

/// A whole number that an std::uint64_t holds, in decimal digits without zeros in front.
[[nodiscard]] CLI::Validator unsigned_number();

/// Refuses empty values of all options and positionals of the commands, such as those of "--json "$OUT"" with OUT
/// unset. Those of --launcher-args, which may be none, stay.
void refuse_empty_values(CLI::App& app);

/// "--json=" as the words "--json" and "": CLI11 would take the next word as its value.
[[nodiscard]] std::vector<std::string> with_empty_values(const CLI::App& command,
                                                         const std::vector<std::string>& words);

}  // namespace convoy
