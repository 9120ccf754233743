// SPDX-License-Identifier: Apache-2.0
//
// Visits the options of a Config: first every name in the file must be a known one, then every key that is there is
// read into its field.
#include "app/config/config_reader.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <type_traits>

#include "app/config/config_keys.h"
#include "app/config/config_source.h"
#include "app/config/config_value.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

class Reader {
 public:
  Reader(const ConfigSource& source, InputFiles files, Config& config)
      : source_(source), values_(source, files), config_(config) {}

  void section(std::string_view name, std::string_view /*help*/) {
    prefix_ = name;
    table_ = source_.root()[name].as_table();
  }

  /// What the field holds unless the file says otherwise.
  template <class T>
  void fallback(T& field, const std::type_identity_t<T>& value) {
    field = value;
  }

  template <class T>
  void key(std::string_view name, T& field, const Rule& rule, std::string_view /*help*/) {
    const std::string path = fmt::format("{}.{}", prefix_, name);
    const toml::node* node = table_ == nullptr ? nullptr : table_->get(name);
    if (node == nullptr) {
      if (rule.must_be_there && rule.applies) {
        values_.refuse(path, fmt::format("missing (must be {})", describe<T>(rule)));
      }
      return;
    }
    if (!rule.applies) values_.refuse(path, rule.why_not);
    values_.read(*node, field, rule, path);
    config_.origins[path] = source_.origin(path);
  }

  /// Each item is called by its index unless it says otherwise.
  template <class T>
  void tables(std::string_view name, std::vector<T>& items, const Rule& rule, std::string_view /*help*/) {
    const toml::node* node = table_ == nullptr ? nullptr : table_->get(name);
    if (node == nullptr) return;
    const std::string path = fmt::format("{}.{}", prefix_, name);
    if (!rule.applies) values_.refuse(path, rule.why_not);
    const toml::array& list = *node->as_array();
    for (std::size_t i = 0; i < list.size(); ++i) {
      prefix_ = fmt::format("{}[{}]", path, i);
      table_ = list.get(i)->as_table();
      T item;
      item.name = std::to_string(i);
      visit_options(*this, item);
      items.push_back(item);
    }
  }

 private:
  const ConfigSource& source_;
  ValueReader values_;
  Config& config_;
  std::string prefix_;                  ///< "section" or "model.layers[2]"
  const toml::table* table_ = nullptr;  ///< null when the file has no such section
};

}  // namespace

ParsedConfig parse_keys(std::string_view text, const std::string& path, const std::vector<std::string>& overrides,
                        InputFiles files) {
  auto source = std::make_shared<ConfigSource>(text, path, overrides);
  refuse_unknown_keys(*source);
  ParsedConfig parsed;
  parsed.config.run.name = std::filesystem::path(path).stem().string();
  Reader reader(*source, files, parsed.config);
  visit_config(reader, parsed.config);
  parsed.place = [source](std::string_view key) { return source->place(key); };
  return parsed;
}

std::string read_config_text(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail_usage("{}: is a folder (must be a config file)", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_usage("{}: the config cannot be opened: {}", path, std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) fail_usage("{}: the config cannot be read: {}", path, std::strerror(errno));
  return text.str();
}

}  // namespace convoy
