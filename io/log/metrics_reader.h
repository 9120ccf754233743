// SPDX-License-Identifier: Apache-2.0
//
// The reader of metrics.jsonl (docs/interface.md): one line is a flat JSON object of numbers, strings and lists of
// numbers. It uses the SAX interface of nlohmann::json: a DOM for each of a million lines takes several times as long.
// A reader reuses its memory from one line to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

class MetricsLine {
 public:
  /// Replaces the fields by those of `line`. Returns false if the line is not a JSON object.
  bool parse(std::string_view line);

  /// NaN if the key is missing or not a number; a boolean is 0 or 1.
  [[nodiscard]] double number(std::string_view key) const;
  /// A number that is an integer from 0 to 2^53.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  /// Empty if the key is missing or not a string.
  [[nodiscard]] std::string_view text(std::string_view key) const;
  /// Empty if the key is missing or not a list.
  [[nodiscard]] const std::vector<double>& list(std::string_view key) const;

 private:
  friend class FieldReader;
  struct Field {
    std::string key, text;
    double number = 0;
    std::vector<double> list;
  };
  Field& add(std::string_view key);
  [[nodiscard]] const Field* find(std::string_view key) const;

  std::vector<Field> fields_;
  std::size_t used_ = 0;
};

}  // namespace convoy
