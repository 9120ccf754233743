// SPDX-License-Identifier: Apache-2.0
//
// Overrides are parsed as TOML values one by one, so that they are as strict as the file; only a word
// that is no TOML at all stands for itself.
#include "app/config/config_source.h"

#include <cstddef>
#include <memory>
#include <sstream>
#include <utility>

#include "app/base/toml_keys.h"
#include "app/base/trimmed.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"

namespace convoy {

namespace {

/// Parses "x = TEXT"; nothing unless that is one TOML value.
std::unique_ptr<toml::table> parse_value(std::string_view text) {
  if (text.find('\n') != std::string_view::npos || line_of_deep_key(text) > 0) return nullptr;
  try {
    return std::make_unique<toml::table>(toml::parse("x = " + std::string(text)));
  } catch (const toml::parse_error&) {
    return nullptr;
  }
}

/// Whether text that is no TOML was meant as a string: it does not begin like a list, a table or a quoted string.
bool bare_word(std::string_view text) {
  return text.empty() || (std::string_view("[{\"'#").find(text.front()) == std::string_view::npos &&
                          text.find('\n') == std::string_view::npos);
}

}  // namespace

ConfigSource::ConfigSource(std::string_view text, std::string path, const std::vector<std::string>& overrides)
    : path_(std::move(path)) {
  if (const std::size_t line = line_of_deep_key(text); line > 0) {
    fail_usage("{}:{}: a key of more than {} parts", path_, line, kMostKeyParts);
  }
  try {
    root_ = toml::parse(text, std::string_view(path_));
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    const std::string_view problem = error.description();
    const bool value = problem.find("parsing boolean") != std::string_view::npos ||
                       problem.find("could not determine value type") != std::string_view::npos;
    fail_usage("{}:{}:{}: this is not TOML: {}{}", path_, at.line, at.column, problem,
               value ? " (strings are written in quotes)" : "");
  }
  for (const std::string& given : overrides) {
    const std::size_t space = given.starts_with("--") ? given.find(' ') : std::string::npos;
    option_ = space == std::string::npos ? "--set" : given.substr(0, space);
    lay_over(space == std::string::npos ? given : given.substr(space + 1));
  }
}

toml::table& ConfigSource::section_of(const std::string& key, const std::string& override) {
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos || dot == 0 || dot + 1 == key.size()) {
    fail_usage("{}: \"{}\" is not an override (write section.key=value, or -section.key to leave a key out)", option_,
               override);
  }
  const std::string section = key.substr(0, dot);
  if (!root_.contains(section)) {
    root_.insert(section, toml::table{});
    overridden_[section] = option_;
  }
  toml::table* table = root_[section].as_table();
  if (table == nullptr) {
    fail_usage("{}: {}: is {} (must be a section, [{}])", place(section), section, type_name(*root_.get(section)),
               section);
  }
  return *table;
}

void ConfigSource::leave_out(const std::string& key) {
  toml::table& table = section_of(key, "-" + key);
  const auto found = table.find(key.substr(key.find('.') + 1));
  if (found == table.end() && !replaced_.contains(key)) {
    fail_usage("{}: -{}: {} does not give this key (leave the override out)", option_, key, path_);
  }
  if (found != table.end()) table.erase(found);
  overridden_[key] = option_;
}

void ConfigSource::lay_over(const std::string& override) {
  const std::size_t equals = override.find('=');
  if (override.starts_with('-') && equals == std::string::npos) {
    leave_out(std::string(trimmed(std::string_view(override).substr(1), " ")));
    return;
  }
  const std::string key(trimmed(std::string_view(override).substr(0, equals), " "));
  toml::table& table = section_of(equals == std::string::npos ? "" : key, override);
  const std::string name = key.substr(key.find('.') + 1);
  const std::string_view text = trimmed(std::string_view(override).substr(equals + 1), " ");
  if (const auto parsed = parse_value(text)) {
    parsed->get("x")->visit([&](auto& value) { table.insert_or_assign(name, std::move(value)); });
  } else if (bare_word(text)) {
    if (without_controls(text) != text) {
      fail_usage("{}: {}: {} is not UTF-8, or has control characters (a config is text of UTF-8)", option_, key,
                 without_controls(text));
    }
    table.insert_or_assign(name, std::string(text));
  } else {
    fail_usage(
        "{}: {}: {} is not a value (a number, true, false, a word, \"text in quotes\", or a list [\"a\", \"b\"])",
        option_, key, text.substr(0, text.find('\n')));
  }
  texts_[key] = text;
  overridden_[key] = option_;
  if (key == "train.epochs") replace("train.steps");
  if (key == "train.steps") replace("train.epochs");
}

// The file's key gives way to an override of the other one.
void ConfigSource::replace(const std::string& key) {
  toml::table& table = *root_["train"].as_table();
  if (!overridden(key) && table.erase(key.substr(key.find('.') + 1)) > 0) replaced_.insert(key);
}

const std::string* ConfigSource::override_text(std::string_view key) const {
  const auto found = texts_.find(key);
  return found == texts_.end() ? nullptr : &found->second;
}

const std::string* ConfigSource::option_of(std::string_view key) const {
  const std::size_t dot = key.find('.');
  const std::size_t end = dot == std::string_view::npos ? dot : key.find_first_of(".[", dot + 1);
  for (const std::string_view given : {key, key.substr(0, end), key.substr(0, dot)}) {
    if (const auto found = overridden_.find(given); found != overridden_.end()) return &found->second;
  }
  return nullptr;
}

bool ConfigSource::overridden(std::string_view key) const { return option_of(key) != nullptr; }

std::string ConfigSource::place(std::string_view key, const toml::source_region& region) const {
  if (const std::string* option = option_of(key)) return *option;
  if (region.begin.line == 0) return path_ + ":1:1";  // a table that no line of the file begins
  return fmt::format("{}:{}:{}", path_, region.begin.line, region.begin.column);
}

std::string ConfigSource::place(std::string_view key) const {
  if (const std::string* option = option_of(key)) return *option;
  for (std::string_view known = key; !known.empty();) {
    const auto node = toml::at_path(root_, known);
    if (node && (overridden(known) || node.node()->source().begin.line > 0)) return place(known, node.node()->source());
    const std::size_t end = known.find_last_of(".[");
    known = end == std::string_view::npos ? std::string_view() : known.substr(0, end);
  }
  return path_ + ":1:1";
}

std::string ConfigSource::origin(std::string_view key) const {
  if (const std::string* option = option_of(key)) return *option;
  const auto node = toml::at_path(root_, key);
  return fmt::format("{}:{}", path_, node ? node.node()->source().begin.line : 1);
}

std::string type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return node.is_array_of_tables() ? "a list of tables" : "a list";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a number with a fraction";
    case toml::node_type::boolean: return "a boolean";
    default: return "a date or time";
  }
}

std::string value_text(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& value) { text << value; });
  return text.str();
}

}  // namespace convoy
