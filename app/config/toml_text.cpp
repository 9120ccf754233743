// SPDX-License-Identifier: Apache-2.0
#include "app/config/toml_text.h"

#include <fmt/format.h>

#include "app/base/duration.h"

namespace convoy {

std::string toml_text(bool value) { return value ? "true" : "false"; }
std::string toml_text(std::int64_t value) { return std::to_string(value); }
std::string toml_text(std::uint64_t value) { return std::to_string(value); }

std::string toml_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string toml_text(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string toml_text(const std::array<double, 2>& value) {
  return toml_text(std::vector<double>(value.begin(), value.end()));
}

std::string toml_text(const Size2d& value) { return value.str(); }

std::string toml_text(const PartitionOptions& value) {
  return value.first_units.empty() ? "\"auto\"" : toml_text(value.first_units);
}

std::string toml_text(const RecomputeOptions& value) {
  if (!value.units.empty()) return toml_text(value.units);
  return value.blocks ? "\"blocks\"" : "\"none\"";
}

std::string toml_text(const std::optional<std::chrono::seconds>& value) {
  return toml_text(value ? format_duration(*value) : std::string());
}

std::string toml_text(const std::optional<std::int64_t>& value) { return value ? toml_text(*value) : ""; }

}  // namespace convoy
