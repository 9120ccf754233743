// SPDX-License-Identifier: Apache-2.0
//
// A config file as TOML with its overrides laid over it, and for every key the place where it was given.
// Knows TOML, not which keys there are.
#pragma once

#include <toml++/toml.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

class ConfigSource {
 public:
  /// `path` is for messages; `overrides` are "section.key=value".
  ConfigSource(std::string_view text, std::string path, const std::vector<std::string>& overrides);

  [[nodiscard]] const toml::table& root() const { return root_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Where "section.key" or "section.list[0].key" was given: "FILE:LINE:COLUMN" or "--set". Of a key that is not
  /// there, where its section begins; of a section that is not there, the file's first character.
  [[nodiscard]] std::string place(std::string_view key) const;
  /// The same for the node or key that `region` belongs to, in the section or key `key`.
  [[nodiscard]] std::string place(std::string_view key, const toml::source_region& region) const;
  /// "FILE:LINE" or "--set"; only of keys that are there.
  [[nodiscard]] std::string origin(std::string_view key) const;

 private:
  void lay_over(const std::string& override);
  [[nodiscard]] bool overridden(std::string_view key) const;

  std::string path_;
  toml::table root_;
  std::set<std::string, std::less<>> overridden_;  ///< "section.key", and "section" when the file has no such section
};

/// "a string", "an integer" and so on, for messages.
[[nodiscard]] std::string type_name(const toml::node& node);

/// The value as TOML text.
[[nodiscard]] std::string value_text(const toml::node& node);

}  // namespace convoy
