// SPDX-License-Identifier: Apache-2.0
//
// A config file as TOML with its overrides laid over it, and for every key the place where it was given.
// Knows TOML, not which keys there are.
#pragma once

#include <toml++/toml.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

class ConfigSource {
 public:
  /// `path` is for messages; `overrides` are "section.key=value", or "-section.key" to leave a key out. An option in
  /// front ("--case section.key=value") is the place in messages about it, instead of --set.
  ConfigSource(std::string_view text, std::string path, const std::vector<std::string>& overrides);

  [[nodiscard]] const toml::table& root() const { return root_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Where "section.key" or "section.list[0].key" was given: "FILE:LINE:COLUMN" or "--set". Of a key that is not
  /// there, where its section begins; of a section that is not there, the file's first character.
  [[nodiscard]] std::string place(std::string_view key) const;
  /// The same for the node or key that `region` belongs to, in the section or key `key`.
  [[nodiscard]] std::string place(std::string_view key, const toml::source_region& region) const;
  /// What an override gave for this key, as it was written; null for other keys.
  [[nodiscard]] const std::string* override_text(std::string_view key) const;
  /// Whether an override gave this key, or left it out.
  [[nodiscard]] bool overridden(std::string_view key) const;
  /// "FILE:LINE" or "--set"; only of keys that are there.
  [[nodiscard]] std::string origin(std::string_view key) const;

 private:
  void lay_over(const std::string& override);
  void replace(const std::string& key);
  /// The option that gave the key or its section; null for other keys.
  [[nodiscard]] const std::string* option_of(std::string_view key) const;
  void leave_out(const std::string& key);
  toml::table& section_of(const std::string& key, const std::string& override);

  std::string path_;
  toml::table root_;
  std::string option_;                                     ///< that of the override that is laid over
  std::map<std::string, std::string, std::less<>> texts_;  ///< of overridden keys
  /// The options that gave "section.key", and "section" when the file has no such section.
  std::map<std::string, std::string, std::less<>> overridden_;
  std::set<std::string, std::less<>> replaced_;  ///< train.steps or train.epochs, where the other was given
};

/// "a string", "an integer" and so on, for messages.
[[nodiscard]] std::string type_name(const toml::node& node);

/// The value as TOML text.
[[nodiscard]] std::string value_text(const toml::node& node);

}  // namespace convoy
