// SPDX-License-Identifier: Apache-2.0
#include "app/config/config_printer.h"

#include <cstddef>
#include <string_view>
#include <vector>

#include "app/config/toml_text.h"

namespace convoy {

namespace {

class Printer {
 public:
  Printer(const Config& config, bool with_origins) : config_(config), with_origins_(with_origins) {}

  void section(std::string_view name, std::string_view /*help*/) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", name);
    prefix_ = name;
  }

  template <class T>
  void key(std::string_view name, const T& field, const Rule& rule, std::string_view /*help*/) {
    const std::string value = toml_text(field);
    if (!rule.applies || value.empty()) return;
    const std::string line = fmt::format("{} = {}", name, value);
    text +=
        with_origins_ ? fmt::format("{:<40}  # {}\n", line, origin(fmt::format("{}.{}", prefix_, name))) : line + "\n";
  }

  template <class T, class U>
  void fallback(const T& /*field*/, const U& /*value*/) {}

  template <class T>
  void tables(std::string_view name, const std::vector<T>& items, const Rule& rule, std::string_view /*help*/) {
    if (!rule.applies) return;
    const std::string path = fmt::format("{}.{}", prefix_, name);
    for (std::size_t i = 0; i < items.size(); ++i) {
      text += fmt::format("\n[[{}]]\n", path);
      prefix_ = fmt::format("{}[{}]", path, i);
      visit_options(*this, items[i]);
    }
  }

  std::string text;

 private:
  [[nodiscard]] std::string origin(const std::string& path) const {
    const auto found = config_.origins.find(path);
    return found == config_.origins.end() ? "default" : found->second;
  }

  const Config& config_;
  bool with_origins_;
  std::string prefix_;
};

}  // namespace

std::string resolved_toml(const Config& config, bool with_origins) {
  Printer printer(config, with_origins);
  visit_config(printer, config);
  return printer.text;
}

}  // namespace convoy
