// SPDX-License-Identifier: Apache-2.0
#include "app/config/config_keys.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "app/config/config.h"
#include "app/config/toml_text.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

struct Section {
  std::string name;
  std::vector<std::string_view> keys;
};

/// A visitor that collects names. A list of tables is a section of its own, "model.layers".
class Names {
 public:
  Names() {
    const Config config;
    visit_config(*this, config);
  }
  void section(std::string_view name, std::string_view /*help*/) { sections.push_back({std::string(name), {}}); }
  template <class T>
  void key(std::string_view name, const T& /*field*/, const Rule& /*rule*/, std::string_view /*help*/) {
    sections.back().keys.push_back(name);
  }
  template <class T, class U>
  void fallback(const T& /*field*/, const U& /*value*/) {}
  template <class T>
  void tables(std::string_view name, const std::vector<T>& /*items*/, const Rule& /*rule*/, std::string_view /*help*/) {
    sections.back().keys.push_back(name);
    choices::NameCollector collector;
    const T item;
    visit_options(collector, item);
    lists.push_back({fmt::format("{}.{}", sections.back().name, name), collector.names});
  }

  std::vector<Section> sections, lists;
};

/// "did you mean train.epochs?", "its keys: ..."
std::string right_key(const Section& section, std::string_view key, const std::vector<Section>& all) {
  const std::string near = did_you_mean(key, section.keys);
  if (!near.empty()) return fmt::format("did you mean {}.{}?", section.name, near);
  for (const Section& other : all) {
    if (std::find(other.keys.begin(), other.keys.end(), key) != other.keys.end()) {
      return fmt::format("did you mean {}.{}?", other.name, key);
    }
  }
  return fmt::format("its keys: {}", join(section.keys));
}

void refuse_unknown(const ConfigSource& source, const toml::table& table, const Section& section,
                    const std::string& path, const std::vector<Section>& all) {
  const toml::key* first = nullptr;  // in the order of the file: toml++ sorts by name
  for (const auto& [key, value] : table) {
    const bool known = std::find(section.keys.begin(), section.keys.end(), key.str()) != section.keys.end();
    if (!known && (first == nullptr || key.source().begin < first->source().begin)) first = &key;
  }
  if (first == nullptr) return;
  const std::string name = path + "." + std::string(first->str());
  fail_usage("{}: {}: unknown key ({})", source.place(name, first->source()), name,
             right_key(section, first->str(), all));
}

void refuse_unknown_in_tables(const ConfigSource& source, const toml::node& tables, const Section& section,
                              const std::vector<Section>& all) {
  const toml::array* list = tables.as_array();
  const bool good =
      list != nullptr && std::all_of(list->begin(), list->end(), [](const toml::node& n) { return n.is_table(); });
  if (!good) {
    fail_usage("{}: {}: is {} (must be a list of tables, [[{}]])", source.place(section.name), section.name,
               list != nullptr ? "a list with something else than tables" : type_name(tables), section.name);
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    refuse_unknown(source, *list->get(i)->as_table(), section, fmt::format("{}[{}]", section.name, i), all);
  }
}

/// The values that an option of this type chooses from.
template <class T>
std::vector<std::string> choices_of(const Rule& rule) {
  std::vector<std::string_view> names(rule.names.begin(), rule.names.end());
  if constexpr (OptionEnum<T>) {
    names.assign(EnumNames<T>::names.begin(), EnumNames<T>::names.end());
  } else if constexpr (std::is_same_v<T, bool>) {
    names = {"true", "false"};
  }
  return {names.begin(), names.end()};
}

/// A visitor that describes every key.
class Tabulator {
 public:
  void section(std::string_view name, std::string_view help) {
    sections.push_back({std::string(name), std::string(help), false, {}});
  }
  template <class T>
  void key(std::string_view name, const T& field, const Rule& rule, std::string_view help) {
    sections.back().keys.push_back({std::string(name), rule.must_be_there ? "required" : toml_text(field),
                                    describe<T>(rule), std::string(help), choices_of<T>(rule)});
  }
  template <class T>
  void fallback(T& field, const std::type_identity_t<T>& value) {
    field = value;
  }
  template <class T>
  void tables(std::string_view name, const std::vector<T>& /*items*/, const Rule& /*rule*/, std::string_view help) {
    sections.push_back({fmt::format("{}.{}", sections.back().name, name), std::string(help), true, {}});
    T item;
    visit_options(*this, item);
  }

  std::vector<ConfigSection> sections;
};

}  // namespace

void refuse_unknown_keys(const ConfigSource& source) {
  const Names names;
  std::vector<std::string_view> sections;
  for (const Section& section : names.sections) sections.push_back(section.name);
  std::vector<const toml::key*> keys;
  for (const auto& [key, value] : source.root()) keys.push_back(&key);
  std::sort(keys.begin(), keys.end(),
            [](const toml::key* a, const toml::key* b) { return a->source().begin < b->source().begin; });
  for (const toml::key* key : keys) {
    const std::string_view name = key->str();
    const std::string place = source.place(name, key->source());
    const toml::node& node = *source.root().get(name);
    const auto known = std::find(sections.begin(), sections.end(), name);
    if (known == sections.end()) {
      const std::string near = did_you_mean(name, sections);
      const std::string right =
          near.empty() ? "the sections: " + join(sections) : fmt::format("did you mean [{}]?", near);
      fail_usage("{}: {}: unknown {} ({})", place, name, node.is_table() ? "section" : "key outside the sections",
                 right);
    }
    if (!node.is_table()) {
      fail_usage("{}: {}: is {} (must be a section, [{}])", place, name, type_name(node), name);
    }
    const Section& section = names.sections[static_cast<std::size_t>(known - sections.begin())];
    refuse_unknown(source, *node.as_table(), section, std::string(name), names.sections);
    for (const Section& list : names.lists) {
      const auto tables = toml::at_path(source.root(), list.name);
      if (tables && list.name.starts_with(section.name + ".")) {
        refuse_unknown_in_tables(source, *tables.node(), list, names.sections);
      }
    }
  }
}

std::vector<ConfigSection> config_key_table() {
  Tabulator tabulator;
  Config config;
  visit_config(tabulator, config);
  return std::move(tabulator.sections);
}

std::string config_key_list() {
  std::string text = "Config keys, with their defaults:\n";
  for (const ConfigSection& section : config_key_table()) {
    text += fmt::format("\n{}  {}\n", section.header(), section.help);
    for (const ConfigKey& key : section.keys) {
      text += fmt::format("  {}{}: {}; {}\n", key.name, key.fallback.empty() ? "" : " (" + key.fallback + ")", key.type,
                          key.help);
    }
  }
  return text;
}

}  // namespace convoy
