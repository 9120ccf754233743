// SPDX-License-Identifier: Apache-2.0
//
// The names of all config keys, as the options are visited: unknown names are refused with the nearest known one, and
// all keys are listed for help, man pages and completion.
#pragma once

#include <string>
#include <vector>

#include "app/config/config_source.h"

namespace convoy {

/// Throws a usage Error about the first section or key that is unknown, or is no section where one must be.
void refuse_unknown_keys(const ConfigSource& source);

struct ConfigKey {
  std::string name;
  std::string fallback;  ///< the default as TOML, "" without one, or "required"
  std::string type;      ///< "an integer of at least 1"
  std::string help;
  std::vector<std::string> choices;  ///< of a value, or an element of a list; empty: anything of this type
};

struct ConfigSection {
  std::string name;  ///< "run", "model.layers"
  std::string help;
  bool tables = false;  ///< a list of tables
  std::vector<ConfigKey> keys;

  /// "[run]", "[[model.layers]]".
  [[nodiscard]] std::string header() const { return tables ? "[[" + name + "]]" : "[" + name + "]"; }
};

/// All keys, in the order in which configs are printed.
[[nodiscard]] std::vector<ConfigSection> config_key_table();

/// Every key with its type, range, default and meaning, section by section.
[[nodiscard]] std::string config_key_list();

}  // namespace convoy
