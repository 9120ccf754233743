// SPDX-License-Identifier: Apache-2.0
#include "app/config/config_keys.h"

#include <algorithm>

#include "app/config/config_schema.h"
#include "app/config/toml_text.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

struct Section {
  std::string_view name;
  std::vector<std::string_view> keys;
};

/// A visitor that only collects names; those of a layer come as the last section, "model.layers".
class Names {
 public:
  Names() {
    Config config;
    visit_config(*this, config);
    LayerConfig layer;
    section("model.layers", "");
    visit_layer(*this, layer);
  }
  void section(std::string_view name, std::string_view /*help*/) { sections.push_back({name, {}}); }
  template <class T>
  void key(std::string_view name, const T& /*field*/, const Rule& /*rule*/, std::string_view /*help*/) {
    sections.back().keys.push_back(name);
  }
  template <class T, class U>
  void fallback(const T& /*field*/, const U& /*value*/) {}
  void layers(const std::vector<LayerConfig>& /*layers*/, const Rule& /*rule*/) {
    sections.back().keys.push_back("layers");
  }

  std::vector<Section> sections;
};

/// "did you mean train.epochs?", "its keys: ..."
std::string right_key(const Section& section, std::string_view key, const std::vector<Section>& all) {
  const std::string near = did_you_mean(key, section.keys);
  if (!near.empty()) return fmt::format("did you mean {}.{}?", section.name, near);
  for (const Section& other : all) {
    if (other.name != "model.layers" && std::find(other.keys.begin(), other.keys.end(), key) != other.keys.end()) {
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

void refuse_unknown_layer_keys(const ConfigSource& source, const toml::node& layers, const Section& section,
                               const std::vector<Section>& all) {
  const toml::array* list = layers.as_array();
  const bool tables =
      list != nullptr && std::all_of(list->begin(), list->end(), [](const toml::node& n) { return n.is_table(); });
  if (!tables) {
    fail_usage("{}: model.layers: is {} (must be a list of tables, [[model.layers]])", source.place("model.layers"),
               list != nullptr ? "a list with something else than tables" : type_name(layers));
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    refuse_unknown(source, *list->get(i)->as_table(), section, fmt::format("model.layers[{}]", i), all);
  }
}

/// A visitor that writes one line for each key.
class Lister {
 public:
  void section(std::string_view name, std::string_view help) { text += fmt::format("\n[{}]  {}\n", name, help); }
  template <class T>
  void key(std::string_view name, const T& field, const Rule& rule, std::string_view help) {
    const std::string value = rule.must_be_there ? "required" : toml_text(field);
    text += fmt::format("  {}{}: {}; {}\n", name, value.empty() ? "" : " (" + value + ")", describe<T>(rule), help);
  }
  template <class T>
  void fallback(T& field, const std::type_identity_t<T>& value) {
    field = value;
  }
  void layers(const std::vector<LayerConfig>& /*layers*/, const Rule& /*rule*/) {
    LayerConfig layer;
    section("[model.layers]", "one for each layer of a sequential model");
    visit_layer(*this, layer);
  }

  std::string text = "Config keys, with their defaults:\n";
};

}  // namespace

void refuse_unknown_keys(const ConfigSource& source) {
  const Names names;
  std::vector<std::string_view> sections;
  for (const Section& section : names.sections) {
    if (section.name != "model.layers") sections.push_back(section.name);
  }
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
    const toml::node* layers = name == "model" ? node.as_table()->get("layers") : nullptr;
    if (layers != nullptr) refuse_unknown_layer_keys(source, *layers, names.sections.back(), names.sections);
  }
}

std::string config_key_list() {
  Lister lister;
  Config config;
  config.data.kind = DataKind::kSynthetic;
  visit_config(lister, config);
  return lister.text;
}

}  // namespace convoy
