// SPDX-License-Identifier: Apache-2.0
//
// Visits default options with every choice that other defaults depend on.
#include "app/config/config_defaults.h"

#include <cstddef>
#include <functional>
#include <type_traits>
#include <vector>

#include "app/config/config.h"
#include "app/config/toml_text.h"
#include "layers/base/option_choice.h"

namespace convoy {

namespace {

class Collector {
 public:
  explicit Collector(std::map<std::string, std::set<std::string>, std::less<>>& values) : values_(values) {}

  void section(std::string_view name, std::string_view /*help*/) { prefix_ = name; }
  template <class T>
  void key(std::string_view name, const T& field, const Rule& rule, std::string_view /*help*/) {
    if (!rule.must_be_there) values_[fmt::format("{}.{}", prefix_, name)].insert(toml_text(field));
  }
  template <class T>
  void fallback(T& field, const std::type_identity_t<T>& value) {
    field = value;
  }
  template <class T>
  void tables(std::string_view name, const std::vector<T>& /*items*/, const Rule& /*rule*/, std::string_view /*help*/) {
    const std::string section = prefix_;
    prefix_ = fmt::format("{}.{}", section, name);
    for (const std::string_view type : kChoiceNames<LayerChoice>) {
      T item;
      item.layer = make_choice<LayerChoice>(type);
      visit_options(*this, item);
    }
    prefix_ = section;
  }

 private:
  std::map<std::string, std::set<std::string>, std::less<>>& values_;
  std::string prefix_;
};

}  // namespace

ConfigDefaults::ConfigDefaults() {
  Collector collector(values_);
  const auto collect = [&](auto&& choose) {
    Config config;
    choose(config);
    visit_config(collector, config);
  };
  for (const std::string_view kind : dataset_names()) collect([&](Config& c) { c.data.kind = kind; });
  collect([](Config& c) { c.data.features = 1; });
  for (const std::string_view name : kChoiceNames<OptimizerChoice>) {
    collect([&](Config& c) { c.optimizer.update = make_choice<OptimizerChoice>(name); });
  }
  for (const std::string_view name : kChoiceNames<LrCurve>) {
    collect([&](Config& c) { c.lr_schedule.curve = make_choice<LrCurve>(name); });
  }
}

bool ConfigDefaults::contains(std::string_view key, const std::string& value) const {
  std::string name(key);
  if (const std::size_t index = name.find('['); index != std::string::npos)
    name.erase(index, name.find(']') + 1 - index);
  const auto found = values_.find(name);
  return found != values_.end() && found->second.contains(value);
}

}  // namespace convoy
