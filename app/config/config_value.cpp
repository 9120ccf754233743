// SPDX-License-Identifier: Apache-2.0
#include "app/config/config_value.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "app/base/duration.h"
#include "app/base/input_path.h"
#include "layers/base/error.h"

namespace convoy {

void ValueReader::refuse(const std::string& path, const std::string& problem) const {
  fail_usage("{}: {}: {}", source_.place(path), path, problem);
}

void ValueReader::refuse_type(const std::string& path, const toml::node& node, const std::string& wanted) const {
  refuse(path, fmt::format("is {} (must be {})", type_name(node), wanted));
}

const std::string* ValueReader::text_of(const toml::node& node, const std::string& path) const {
  if (node.is_string()) return &node.as_string()->get();
  const bool one_value = !node.is_array() && !node.is_table();
  return one_value ? source_.override_text(path) : nullptr;
}

void ValueReader::refuse_word(const std::string& path, const std::string& word, std::span<const std::string_view> known,
                              const std::string& wanted) const {
  const std::string near = did_you_mean(word, known);
  const std::string mean = near.empty() ? "" : fmt::format("did you mean \"{}\"? ", near);
  refuse(path, fmt::format("unknown name \"{}\" ({}must be {})", word, mean, wanted));
}

void ValueReader::read(const toml::node& node, bool& field, const Rule& rule, const std::string& path) const {
  if (!node.is_boolean()) refuse_type(path, node, describe<bool>(rule));
  field = node.as_boolean()->get();
}

void ValueReader::read(const toml::node& node, std::int64_t& field, const Rule& rule, const std::string& path) const {
  const std::string wanted = describe<std::int64_t>(rule);
  if (!node.is_integer()) refuse_type(path, node, wanted);
  const std::int64_t value = node.as_integer()->get();
  if (!in_range(rule, static_cast<double>(value))) {
    refuse(path, fmt::format("{} is out of range (must be {})", value, wanted));
  }
  field = value;
}

void ValueReader::read(const toml::node& node, std::uint64_t& field, const Rule& rule, const std::string& path) const {
  std::int64_t value = 0;
  read(node, value, rule, path);
  field = static_cast<std::uint64_t>(value);
}

void ValueReader::read(const toml::node& node, double& field, const Rule& rule, const std::string& path) const {
  const std::string wanted = describe<double>(rule);
  if (!node.is_number()) refuse_type(path, node, wanted);
  const double value =
      node.is_integer() ? static_cast<double>(node.as_integer()->get()) : node.as_floating_point()->get();
  if (!std::isfinite(value)) refuse(path, fmt::format("{} is not finite (must be {})", value, wanted));
  if (!in_range(rule, value)) refuse(path, fmt::format("{} is out of range (must be {})", value, wanted));
  field = value;
}

void ValueReader::read(const toml::node& node, std::string& field, const Rule& rule, const std::string& path) const {
  const std::string wanted = describe<std::string>(rule);
  const std::string* const given = text_of(node, path);
  if (given == nullptr) refuse_type(path, node, wanted);
  field = *given;
  if (std::any_of(field.begin(), field.end(), [](unsigned char c) { return c < ' ' || c == 127; })) {
    refuse(path, "has a control character in it (must be plain text)");
  }
  if (rule.names_file) {
    find_file(field, rule, path);
  } else if (!rule.names.empty() && std::find(rule.names.begin(), rule.names.end(), field) == rule.names.end()) {
    refuse_word(path, field, rule.names, wanted);
  }
}

void ValueReader::find_file(std::string& field, const Rule& rule, const std::string& path) const {
  if (std::find(rule.names.begin(), rule.names.end(), field) != rule.names.end()) return;
  if (field.empty()) {
    if (!rule.must_be_there && rule.names.empty()) return;
    refuse(path, fmt::format("is empty (must be {})", describe<std::string>(rule)));
  }
  if (files_ == InputFiles::kTrust) return;
  const InputPath found = find_input(field, source_.path(), rule.form);
  if (found.problem.empty()) {
    field = found.path;
    return;
  }
  const std::string near = did_you_mean(field, rule.names);
  if (!near.empty()) refuse(path, fmt::format("unknown name \"{}\" (did you mean \"{}\"?)", field, near));
  if (!rule.file_may_be_gone) refuse(path, found.problem);
}

void ValueReader::read(const toml::node& node, std::array<double, 2>& field, const Rule& rule,
                       const std::string& path) const {
  const std::string wanted = describe<std::array<double, 2>>(rule);
  if (!node.is_array()) refuse_type(path, node, wanted);
  std::vector<double> values;
  read(node, values, rule, path);
  if (values.size() != field.size()) refuse(path, fmt::format("has {} items (must be {})", values.size(), wanted));
  std::copy(values.begin(), values.end(), field.begin());
}

void ValueReader::read(const toml::node& node, Size2d& field, const Rule& rule, const std::string& path) const {
  if (node.is_integer()) {
    std::int64_t both = 0;
    read(node, both, rule, path);
    field = both;
    return;
  }
  const std::string wanted = describe<Size2d>(rule);
  if (!node.is_array()) refuse_type(path, node, wanted);
  std::vector<std::int64_t> values;
  read(node, values, rule, path);
  if (values.size() != 2) refuse(path, fmt::format("has {} items (must be {})", values.size(), wanted));
  field = {values[0], values[1]};
}

void ValueReader::read(const toml::node& node, PartitionOptions& field, const Rule& rule,
                       const std::string& path) const {
  const std::string wanted = describe<PartitionOptions>(rule);
  field.first_units.clear();
  if (node.is_string()) {
    const std::string& word = node.as_string()->get();
    if (word != "auto") refuse(path, fmt::format("is \"{}\" (must be {})", word, wanted));
    return;
  }
  if (!node.is_array()) refuse_type(path, node, wanted);
  read(node, field.first_units, anything().items(1), path);
}

void ValueReader::read(const toml::node& node, RecomputeOptions& field, const Rule& rule,
                       const std::string& path) const {
  const std::string wanted = describe<RecomputeOptions>(rule);
  field = {};
  if (node.is_array()) {
    read(node, field.units, anything(), path);
    return;
  }
  if (!node.is_string()) refuse_type(path, node, wanted);
  const std::string& word = node.as_string()->get();
  if (std::find(rule.names.begin(), rule.names.end(), word) == rule.names.end()) {
    refuse_word(path, word, rule.names, wanted);
  }
  field.blocks = word == "blocks";
}

void ValueReader::read(const toml::node& node, std::optional<std::int64_t>& field, const Rule& rule,
                       const std::string& path) const {
  std::int64_t value = 0;
  read(node, value, rule, path);
  field = value;
}

void ValueReader::read(const toml::node& node, std::optional<std::chrono::seconds>& field, const Rule& rule,
                       const std::string& path) const {
  const std::string wanted = describe<std::optional<std::chrono::seconds>>(rule);
  const std::string* const given = text_of(node, path);
  if (given == nullptr) refuse_type(path, node, wanted);
  const std::string& text = *given;
  field = parse_duration(text);
  if (!field && !text.empty()) refuse(path, fmt::format("\"{}\" is not a time above zero (must be {})", text, wanted));
}

}  // namespace convoy
