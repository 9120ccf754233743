// SPDX-License-Identifier: Apache-2.0
//
// "$NAME" and "${NAME}" in a config's paths. A pure function of the text and the variables.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace convoy {

/// The value of a variable; nothing when it is not set.
using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// `text` with its variables replaced. Throws a usage Error for one that is not set or empty, and for a '$' that begins
/// none.
[[nodiscard]] std::string expand_variables(const std::string& text, const VariableLookup& value);

/// Those of this process.
[[nodiscard]] std::optional<std::string> process_variable(const std::string& name);

}  // namespace convoy
