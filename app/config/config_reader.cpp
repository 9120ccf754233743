// SPDX-License-Identifier: Apache-2.0
//
// Visits the options of a Config: first every name in the file must be a known one, then every key that is there is
// read into its field. A key that means nothing with what was chosen is accepted if it gives a default, set aside if an
// override replaced what it belongs to, and else refused.
#include "app/config/config_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <system_error>
#include <type_traits>
#include <utility>

#include "app/config/config_defaults.h"
#include "app/config/config_keys.h"
#include "app/config/config_source.h"
#include "app/config/config_value.h"
#include "app/config/toml_text.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

/// The keys that choose what other keys of their section mean.
constexpr auto kSelectors =
    std::to_array<std::string_view>({"model.name", "data.kind", "optimizer.name", "lr_schedule.name", "parallel.mode"});

std::string_view section_of(std::string_view key) { return key.substr(0, key.find('.')); }

/// The selectors that overrides replace.
std::vector<std::string_view> replaced_selectors(const ConfigSource& source) {
  std::vector<std::string_view> replaced;
  std::copy_if(kSelectors.begin(), kSelectors.end(), std::back_inserter(replaced),
               [&](std::string_view key) { return source.overridden(key); });
  return replaced;
}

using Keys = std::set<std::string, std::less<>>;

/// What visitors of a source share: the section that they are in.
class SourceVisitor {
 public:
  void section(std::string_view name, std::string_view /*help*/) {
    prefix_ = name;
    table_ = source_.root()[name].as_table();
  }
  /// What the field holds unless the file says otherwise.
  template <class T>
  void fallback(T& field, const std::type_identity_t<T>& value) {
    field = value;
  }

 protected:
  SourceVisitor(const ConfigSource& source, InputFiles files) : source_(source), values_(source, files) {}
  /// The key's value; null when the source has none.
  [[nodiscard]] const toml::node* find(std::string_view name) const {
    return table_ == nullptr ? nullptr : table_->get(name);
  }
  [[nodiscard]] std::string path_of(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }

  const ConfigSource& source_;
  ValueReader values_;
  std::string prefix_;                  ///< "section" or "model.layers[2]"
  const toml::table* table_ = nullptr;  ///< null when the source has no such section
};

/// Collects the keys of a file that mean something there, whatever their values are worth.
class MeaningfulKeys : public SourceVisitor {
 public:
  explicit MeaningfulKeys(const ConfigSource& source) : SourceVisitor(source, InputFiles::kTrust) {}

  template <class T>
  void key(std::string_view name, T& field, const Rule& rule, std::string_view /*help*/) {
    const toml::node* node = find(name);
    if (node == nullptr || !rule.applies) return;
    const std::string path = path_of(name);
    keys.insert(path);
    try {
      values_.read(*node, field, rule, path);
    } catch (const Error&) {  // what an override replaces need not be right
      return;
    }
  }
  template <class T>
  void tables(std::string_view name, std::vector<T>& /*items*/, const Rule& rule, std::string_view /*help*/) {
    if (find(name) != nullptr && rule.applies) keys.insert(path_of(name));
  }

  Keys keys;
};

class Reader : public SourceVisitor {
 public:
  /// meaningful: the keys that mean something in the file without the overrides; only of files with replaced selectors.
  Reader(const ConfigSource& source, InputFiles files, Keys meaningful, Config& config)
      : SourceVisitor(source, files), meaningful_(std::move(meaningful)), config_(config) {}

  template <class T>
  void key(std::string_view name, T& field, const Rule& rule, std::string_view /*help*/) {
    const std::string path = path_of(name);
    const toml::node* node = find(name);
    if (node == nullptr) {
      if (rule.must_be_there && rule.applies) {
        values_.refuse(path, fmt::format("missing (must be {})", describe<T>(rule)));
      }
      return;
    }
    if (!rule.applies) {
      if (!gives_default<T>(*node, rule, path)) set_aside(path, rule);
      return;
    }
    values_.read(*node, field, rule, path);
    config_.origins[path] = source_.origin(path);
  }

  /// Each item is called by its index unless it says otherwise.
  template <class T>
  void tables(std::string_view name, std::vector<T>& items, const Rule& rule, std::string_view /*help*/) {
    const toml::node* node = find(name);
    if (node == nullptr) return;
    const std::string path = path_of(name);
    const toml::array& list = *node->as_array();
    if (!rule.applies) {
      if (!list.empty()) set_aside(path, rule);
      return;
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      prefix_ = fmt::format("{}[{}]", path, i);
      table_ = list.get(i)->as_table();
      T item;
      item.name = std::to_string(i);
      visit_options(*this, item);
      items.push_back(item);
    }
  }

  /// Which keys were set aside and why; empty: none.
  [[nodiscard]] std::string note() const {
    if (set_aside_.empty()) return "";
    std::vector<std::string> causes;
    for (const std::string_view selector : kSelectors) {
      const auto of_section = [&](const std::string& key) { return section_of(key) == section_of(selector); };
      if (std::none_of(set_aside_.begin(), set_aside_.end(), of_section)) continue;
      const std::string* text = source_.override_text(selector);
      causes.push_back(text == nullptr ? fmt::format("-{}", selector) : fmt::format("{}={}", selector, *text));
    }
    return fmt::format("{}: set aside, since they mean nothing with --set {}: {}", source_.path(),
                       fmt::join(causes, " "), fmt::join(set_aside_, ", "));
  }

 private:
  template <class T>
  [[nodiscard]] bool gives_default(const toml::node& node, const Rule& rule, const std::string& path) const {
    static const ConfigDefaults defaults;
    T value{};
    try {
      ValueReader(source_, InputFiles::kTrust).read(node, value, rule, path);
    } catch (const Error&) {
      return false;
    }
    return defaults.contains(path, toml_text(value));
  }

  // Sets a key of the file aside that means nothing, unless that is the user's doing.
  void set_aside(const std::string& path, const Rule& rule) {
    const std::vector<std::string_view> replaced = replaced_selectors(source_);
    const bool of_replaced =
        std::any_of(replaced.begin(), replaced.end(), [&](std::string_view key) { return section_of(key) == prefix_; });
    if (!of_replaced || source_.overridden(path) || !meaningful_.contains(path)) values_.refuse(path, rule.why_not);
    set_aside_.push_back(path);
  }

  Keys meaningful_;
  Config& config_;
  std::vector<std::string> set_aside_;
};

}  // namespace

ParsedConfig parse_keys(std::string_view text, const std::string& path, const std::vector<std::string>& overrides,
                        InputFiles files) {
  auto source = std::make_shared<ConfigSource>(text, path, overrides);
  refuse_unknown_keys(*source);
  ParsedConfig parsed;
  parsed.config.run.name = std::filesystem::path(path).stem().string();
  Keys meaningful;
  if (!replaced_selectors(*source).empty()) {
    const ConfigSource file(text, path, {});
    MeaningfulKeys keys(file);
    Config config;
    visit_config(keys, config);
    meaningful = std::move(keys.keys);
  }
  Reader reader(*source, files, std::move(meaningful), parsed.config);
  visit_config(reader, parsed.config);
  parsed.config.note = reader.note();
  parsed.place = [source](std::string_view key) { return source->place(key); };
  return parsed;
}

std::string read_config_text(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail_usage("{}: is a folder (must be a config file)", path);
  auto text = file_text(path);
  if (!text) fail_system(errno, "{}: the config cannot be opened: {}", path, std::strerror(errno));
  return *std::move(text);
}

}  // namespace convoy
