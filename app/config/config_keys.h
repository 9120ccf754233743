// SPDX-License-Identifier: Apache-2.0
//
// The names of all config keys, as the options are visited: unknown names are refused with the nearest known one, and
// all keys are listed for help.
#pragma once

#include <string>

#include "app/config/config_source.h"

namespace convoy {

/// Throws a usage Error about the first section or key that is unknown, or is no section where one must be.
void refuse_unknown_keys(const ConfigSource& source);

/// Every key with its type, range, default and meaning, section by section.
[[nodiscard]] std::string config_key_list();

}  // namespace convoy
