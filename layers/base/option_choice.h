// SPDX-License-Identifier: Apache-2.0
//
// One of several option structs, chosen by name: a std::variant whose alternatives have a `kName`. The variant is the
// registry of its kind: a further alternative is known to readers, printers, lists of options and error messages. An
// option may belong to several alternatives; it is listed once, in an order that suits all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "layers/base/options.h"

namespace convoy {

template <class Choice>
inline constexpr bool kChoiceNames = false;
template <class... Options>
inline constexpr auto kChoiceNames<std::variant<Options...>> = std::to_array<std::string_view>({Options::kName...});

/// The name of the alternative that is held.
template <class... Options>
[[nodiscard]] constexpr std::string_view choice_name(const std::variant<Options...>& choice) {
  return kChoiceNames<std::variant<Options...>>[choice.index()];
}

/// The alternative of that name with its defaults; the first one for an unknown name.
template <class Choice>
[[nodiscard]] Choice make_choice(std::string_view name) {
  Choice result;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    static_cast<void>(((kChoiceNames<Choice>[I] == name && (result.template emplace<I>(), true)) || ...));
  }
  (std::make_index_sequence<std::variant_size_v<Choice>>());
  return result;
}

namespace choices {

/// A visitor that collects the names of options.
struct NameCollector {
  std::vector<std::string_view> names;
  template <class T>
  void key(std::string_view name, const T& /*field*/, const Rule& /*rule*/, std::string_view /*help*/) {
    names.push_back(name);
  }
  template <class T, class U>
  void fallback(const T& /*field*/, const U& /*value*/) {}
};

/// A visitor that passes on one option, with its fallback.
template <class Visitor, class Amend>
class OneOption {
 public:
  OneOption(Visitor& visitor, std::string_view name, Amend amend)
      : visitor_(visitor), name_(name), amend_(std::move(amend)) {}
  template <class T>
  void key(std::string_view name, T& field, const Rule& rule, std::string_view help) {
    if (name == name_) {
      if (fallback_) fallback_();
      visitor_.key(name, field, amend_(rule), help);
    }
    fallback_ = nullptr;
  }
  template <class T, class U>
  void fallback(T& field, const U& value) {
    fallback_ = [this, &field, value] { visitor_.fallback(field, value); };
  }

 private:
  Visitor& visitor_;
  std::string_view name_;
  Amend amend_;
  std::function<void()> fallback_;
};

template <class Options>
std::vector<std::string_view> option_names() {
  NameCollector collector;
  const Options defaults;
  visit_options(collector, defaults);
  return collector.names;
}

/// The options of all alternatives; a new one comes before the next one that is known.
[[nodiscard]] inline std::vector<std::string_view> merged_names(
    const std::vector<std::vector<std::string_view>>& by_alternative) {
  std::vector<std::string_view> merged;
  const auto find = [&](std::string_view name) { return std::find(merged.begin(), merged.end(), name); };
  for (const auto& names : by_alternative) {
    for (auto name = names.begin(); name != names.end(); ++name) {
      if (find(*name) != merged.end()) continue;
      const auto known = std::find_if(name, names.end(), [&](auto later) { return find(later) != merged.end(); });
      merged.insert(known == names.end() ? merged.end() : find(*known), *name);
    }
  }
  return merged;
}

}  // namespace choices

/// The option that chooses the alternative.
template <class Visitor, class Choice>
void visit_choice_name(Visitor& v, std::string_view key, Choice& choice, const Rule& rule, std::string_view help) {
  using Mutable = std::remove_const_t<Choice>;
  std::string name(choice_name(choice));
  Rule names = rule;
  names.names = kChoiceNames<Mutable>;
  v.key(key, name, names, help);
  if constexpr (!std::is_const_v<Choice>) {
    if (name != choice_name(choice)) choice = make_choice<Mutable>(name);
  }
}

/// The options of all alternatives; those of others than the chosen one do not apply. `chooser` is the name that errors
/// use for the option that chooses.
template <class Visitor, class Choice>
void visit_choice_options(Visitor& v, std::string_view chooser, Choice& choice) {
  using Mutable = std::remove_const_t<Choice>;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::vector<std::vector<std::string_view>> names{
        choices::option_names<std::variant_alternative_t<I, Mutable>>()...};
    for (const std::string_view name : choices::merged_names(names)) {
      std::vector<std::string_view> owners;
      std::size_t owner = 0;  // the chosen alternative, or the last one that has the option
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (std::find(names[i].begin(), names[i].end(), name) == names[i].end()) continue;
        owners.push_back(kChoiceNames<Mutable>[i]);
        if (owner != choice.index() || owners.size() == 1) owner = i;
      }
      const auto amend = [&](const Rule& rule) { return rule.only_for(chooser, choice_name(choice), owners); };
      const auto visit_one = [&]<std::size_t J>(std::integral_constant<std::size_t, J>) {
        if (J != owner) return;
        choices::OneOption one(v, name, amend);
        if (auto* chosen = std::get_if<J>(&choice)) {
          visit_options(one, *chosen);
        } else {
          std::variant_alternative_t<J, Mutable> defaults;
          visit_options(one, defaults);
        }
      };
      (visit_one(std::integral_constant<std::size_t, I>()), ...);
    }
  }
  (std::make_index_sequence<std::variant_size_v<Mutable>>());
}

}  // namespace convoy
