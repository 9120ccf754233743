// SPDX-License-Identifier: Apache-2.0
//
// The defaults of all config keys. A default may depend on what is chosen (optimizer.epsilon), so a key may have
// several.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace convoy {

class ConfigDefaults {
 public:
  ConfigDefaults();

  /// Whether `value`, TOML text as of toml_text(), is the default of "section.key" or "section.list[0].key" with some
  /// choice.
  [[nodiscard]] bool contains(std::string_view key, const std::string& value) const;

 private:
  std::map<std::string, std::set<std::string>, std::less<>> values_;  ///< of lists of tables by "section.list.key"
};

}  // namespace convoy
