// SPDX-License-Identifier: Apache-2.0
#include "app/config/config_changes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "app/config/config_printer.h"
#include "app/config/config_reader.h"

namespace convoy {

namespace {

using Values = std::vector<std::pair<std::string, std::string>>;  // key and TOML text, in the order of the file

// Where a run lies, what it shows and when it ends: none of it changes what is computed.
bool is_left_out(const std::string& key) {
  return key.starts_with("run.") || key.starts_with("log.") || key == "checkpoint.dir" || key == "checkpoint.resume";
}

// "section.key = value" of each line of a resolved config, where each key has a line of its own.
Values values_of(const std::string& resolved) {
  Values values;
  std::string prefix;
  std::size_t tables = 0;
  for (std::size_t at = 0; at < resolved.size();) {
    const std::size_t end = std::min(resolved.find('\n', at), resolved.size());
    const std::string line = resolved.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("[[")) {
      prefix = line.substr(2, line.size() - 4) + "[" + std::to_string(tables++) + "].";
    } else if (line.starts_with("[")) {
      prefix = line.substr(1, line.size() - 2) + ".";
    } else if (const std::size_t equals = line.find(" = "); equals != std::string::npos) {
      values.emplace_back(prefix + line.substr(0, equals), line.substr(equals + 3));
    }
  }
  return values;
}

// With this version's defaults where the keys are still known.
Values values_before(std::string_view text) {
  try {
    return values_of(resolved_toml(parse_keys(text, "checkpoint", {}, InputFiles::kTrust).config, false));
  } catch (const Error&) {  // a key that this version has not
    return values_of(std::string(text));
  }
}

std::string value_in(const Values& values, const std::string& key) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == key; });
  return found == values.end() ? "not set" : found->second;
}

}  // namespace

std::vector<ConfigChange> config_changes(std::string_view before, const Config& after) {
  const Values old_values = values_before(before), new_values = values_of(resolved_toml(after, false));
  std::vector<ConfigChange> changes;
  const auto compare = [&](const std::string& key) {
    if (is_left_out(key)) return;
    ConfigChange change{key, value_in(old_values, key), value_in(new_values, key)};
    if (change.before != change.after) changes.push_back(std::move(change));
  };
  for (const auto& [key, value] : new_values) compare(key);
  for (const auto& [key, value] : old_values) {
    if (value_in(new_values, key) == "not set") compare(key);
  }
  return changes;
}

}  // namespace convoy
