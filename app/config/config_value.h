// SPDX-License-Identifier: Apache-2.0
//
// One TOML value into one field of a Config, by the field's type and the key's rule; a value that does not fit is a
// usage Error with its place. Strict: only an integer where a number is wanted is converted.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/config/config_reader.h"
#include "app/config/config_source.h"
#include "layers/base/options.h"
#include "layers/models/recompute.h"

namespace convoy {

class ValueReader {
 public:
  ValueReader(const ConfigSource& source, InputFiles files) : source_(source), files_(files) {}

  /// Throws "PLACE: path: problem".
  [[noreturn]] void refuse(const std::string& path, const std::string& problem) const;
  /// The same for a value that is not of the wanted type.
  [[noreturn]] void refuse_type(const std::string& path, const toml::node& node, const std::string& wanted) const;

  // Each sets `field`; `path` is "section.key" or "section.key[2]".
  void read(const toml::node& node, bool& field, const Rule& rule, const std::string& path) const;
  void read(const toml::node& node, std::int64_t& field, const Rule& rule, const std::string& path) const;
  void read(const toml::node& node, std::uint64_t& field, const Rule& rule, const std::string& path) const;
  void read(const toml::node& node, double& field, const Rule& rule, const std::string& path) const;
  void read(const toml::node& node, std::string& field, const Rule& rule, const std::string& path) const;
  void read(const toml::node& node, std::array<double, 2>& field, const Rule& rule, const std::string& path) const;
  /// One number for both, or [height, width].
  void read(const toml::node& node, Size2d& field, const Rule& rule, const std::string& path) const;
  /// "auto" or a list of names.
  void read(const toml::node& node, PartitionOptions& field, const Rule& rule, const std::string& path) const;
  /// "none", "blocks" or a list of names.
  void read(const toml::node& node, RecomputeOptions& field, const Rule& rule, const std::string& path) const;
  void read(const toml::node& node, std::optional<std::int64_t>& field, const Rule& rule,
            const std::string& path) const;
  void read(const toml::node& node, std::optional<std::chrono::seconds>& field, const Rule& rule,
            const std::string& path) const;

  template <OptionEnum E>
  void read(const toml::node& node, E& field, const Rule& rule, const std::string& path) const {
    if (!node.is_string()) refuse_type(path, node, describe<E>(rule));
    const std::string& word = node.as_string()->get();
    const auto value = from_string<E>(word);
    if (!value) refuse_word(path, word, EnumNames<E>::names, describe<E>(rule));
    field = *value;
  }

  template <class T>
  void read(const toml::node& node, std::vector<T>& field, const Rule& rule, const std::string& path) const {
    const std::string wanted = describe<std::vector<T>>(rule);
    if (!node.is_array()) refuse_type(path, node, wanted);
    const toml::array& list = *node.as_array();
    if (list.size() < rule.least_items) {
      refuse(path, fmt::format("has {} items (must be {}, with at least {})", list.size(), wanted, rule.least_items));
    }
    field.clear();
    for (std::size_t i = 0; i < list.size(); ++i) {
      T value{};
      read(*list.get(i), value, rule, fmt::format("{}[{}]", path, i));
      field.push_back(value);
    }
  }

 private:
  [[noreturn]] void refuse_word(const std::string& path, const std::string& word,
                                std::span<const std::string_view> known, const std::string& wanted) const;
  void find_file(std::string& field, const Rule& rule, const std::string& path) const;

  /// The text of the value, if it is a string, or an override that reads like something else: run.name=2024.
  [[nodiscard]] const std::string* text_of(const toml::node& node, const std::string& path) const;

  const ConfigSource& source_;
  InputFiles files_;
};

}  // namespace convoy
