// SPDX-License-Identifier: Apache-2.0
//
// The names of all config keys, taken from the table in config_schema.h: to refuse unknown ones with the nearest
// known name, and to list them all for people.
#pragma once

#include <string>

#include "app/config/config_source.h"

namespace convoy {

/// Throws a usage Error about the first section or key that is unknown, or is no section where one must be.
void refuse_unknown_keys(const ConfigSource& source);

/// Every key with its type, range, default and meaning, section by section.
[[nodiscard]] std::string config_key_list();

}  // namespace convoy
