// SPDX-License-Identifier: Apache-2.0
//
// The fields of one line of metrics.jsonl: a flat JSON object of numbers, texts and lists of numbers. Relies on a JSON
// reader that calls back, since a tree of each of a million lines takes several times as long. Invariant: memory of one
// line is used again for the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

class MetricsFields {
 public:
  /// False when the line is no JSON object.
  bool parse(std::string_view line);

  /// NaN when it is not there, or no number.
  [[nodiscard]] double number(std::string_view key) const;
  /// Of a whole number that is not negative and exact in a double.
  [[nodiscard]] std::optional<std::int64_t> whole(std::string_view key) const;
  /// Empty when it is not there, or no text.
  [[nodiscard]] std::string_view text(std::string_view key) const;
  /// Empty when it is not there, or no list.
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
