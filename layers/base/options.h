// SPDX-License-Identifier: Apache-2.0
//
// Option structs: the settings of a part of the program, beside the code that they configure. Each has a static
// `visit(visitor, options)` that lists its options: name, field, rule (what values are allowed) and help. The type of
// an option is its field's, the default is what the field holds. Readers, printers and lists of options are visitors:
//
//   visitor.key(name, field, rule, help)   one option
//   visitor.fallback(field, value)         the default of the next option, where it depends on earlier options
//   visitor.tables(name, items, rule, help)  a list of option structs
//
// Nothing here depends on a file format: app/config reads TOML.
#pragma once

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "layers/base/did_you_mean.h"

namespace convoy {

/// The names of an enum's values, in their order; CONVOY_OPTION_ENUM specialises it beside each enum.
template <class E>
struct EnumNames;

template <class E>
concept OptionEnum = requires {
  EnumNames<E>::names;
};

/// The name of a value in configs and logs.
template <OptionEnum E>
[[nodiscard]] constexpr std::string_view to_string(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

/// The value of that name, or nothing.
template <OptionEnum E>
[[nodiscard]] constexpr std::optional<E> from_string(std::string_view name) {
  for (std::size_t i = 0; i < EnumNames<E>::names.size(); ++i) {
    if (EnumNames<E>::names[i] == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

#define CONVOY_OPTION_ENUM(E, ...)                                                \
  template <>                                                                     \
  struct EnumNames<E> {                                                           \
    static constexpr auto names = std::to_array<std::string_view>({__VA_ARGS__}); \
  }

/// What an option that names an input may name.
enum class InputForm { kFile, kFileOrFolder, kFileOrShards };

inline constexpr double kMaxCount = 1e15;  ///< samples, steps: products with the batch still fit in 64 bits

/// The values that an option accepts. Numbers: minimum <= x <= maximum, or < where open; in lists, each element.
struct Rule {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool open_minimum = false;
  bool open_maximum = false;
  bool must_be_there = false;
  bool names_file = false;                    ///< a string that names a file to read; empty: none
  bool file_may_be_gone = false;              ///< who reads it finds out
  InputForm form = InputForm::kFile;          ///< of what it names
  std::size_t least_items = 0;                ///< of a list
  std::span<const std::string_view> names{};  ///< the strings that are allowed (or, for a file, that name none)
  bool applies = true;
  std::string why_not{};  ///< "what is wrong (what would be right)" when it does not apply

  [[nodiscard]] Rule required() const {
    return changed([](Rule& r) { r.must_be_there = true; });
  }
  [[nodiscard]] Rule items(std::size_t least) const {
    return changed([&](Rule& r) { r.least_items = least; });
  }
  [[nodiscard]] Rule of_form(InputForm wanted) const {
    return changed([&](Rule& r) { r.form = wanted; });
  }
  /// The file need not be there any more.
  [[nodiscard]] Rule or_gone() const {
    return changed([](Rule& r) { r.file_may_be_gone = true; });
  }
  /// The option belongs here only if `condition`.
  [[nodiscard]] Rule only_if(bool condition, std::string_view otherwise) const {
    return changed([&](Rule& r) {
      if (!r.applies || condition) return;
      r.applies = false;
      r.why_not = otherwise;
    });
  }
  /// The option belongs only to some values of the option called `chooser`.
  [[nodiscard]] Rule only_for(std::string_view chooser, std::string_view value,
                              std::span<const std::string_view> owners) const;
  [[nodiscard]] Rule only_for(std::string_view chooser, std::string_view value,
                              std::initializer_list<std::string_view> owners) const {
    return only_for(chooser, value, std::span(owners.begin(), owners.size()));
  }
  template <OptionEnum E>
  [[nodiscard]] Rule only_for(std::string_view chooser, E value, std::initializer_list<E> owners) const {
    std::vector<std::string_view> owner_names;
    for (const E owner : owners) owner_names.push_back(to_string(owner));
    return only_for(chooser, to_string(value), owner_names);
  }

 private:
  template <class F>
  [[nodiscard]] Rule changed(F&& change) const {
    Rule result = *this;
    change(result);
    return result;
  }
};

inline Rule anything() { return {}; }
inline Rule at_least(double minimum) { return {.minimum = minimum}; }
inline Rule above(double minimum) { return {.minimum = minimum, .open_minimum = true}; }
inline Rule between(double minimum, double maximum) { return {.minimum = minimum, .maximum = maximum}; }
inline Rule below(double minimum, double maximum) {
  return {.minimum = minimum, .maximum = maximum, .open_maximum = true};
}
inline Rule one_of(std::span<const std::string_view> names) { return {.names = names}; }
/// A file to read, or one of `names`.
inline Rule input_file(std::span<const std::string_view> names = {}) { return {.names_file = true, .names = names}; }

/// " of at least 1", " from 0 to 1"; empty without bounds.
[[nodiscard]] std::string describe_range(const Rule& rule);
[[nodiscard]] bool in_range(const Rule& rule, double value);

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

/// A type of options that says itself what its values are.
template <class T>
concept DescribedOption = requires {
  T::kDescription;
};

/// What an option of type T must be: "an integer of at least 1", "one of sgd, lars, adamw".
template <class T>
[[nodiscard]] std::string describe(const Rule& rule) {
  if constexpr (std::is_same_v<T, std::optional<std::chrono::seconds>>) {
    return "a time, \"HH:MM:SS\"";
  } else if constexpr (kIsOptional<T>) {
    return describe<typename T::value_type>(rule);
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (OptionEnum<T>) {
    return (EnumNames<T>::names.size() > 1 ? "one of " : "") + join(EnumNames<T>::names);
  } else if constexpr (std::is_integral_v<T>) {
    return "an integer" + describe_range(rule);
  } else if constexpr (std::is_same_v<T, double>) {
    return "a number" + describe_range(rule);
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (rule.names_file) {
      const std::string_view file = rule.form == InputForm::kFileOrFolder ? "a file or a folder" : "a file";
      return rule.names.empty() ? std::string(file) : fmt::format("{} or {}", join(rule.names), file);
    }
    return rule.names.empty() ? "a string" : "one of " + join(rule.names);
  } else if constexpr (DescribedOption<T>) {
    return std::string(T::kDescription) + describe_range(rule);
  } else if constexpr (std::is_same_v<T, std::array<double, 2>>) {
    return "a list of two numbers, each" + describe_range(rule);
  } else {
    static_assert(kIsVector<T>);
    using Element = typename T::value_type;
    const std::string what = std::is_same_v<Element, std::string> ? "strings"
                             : std::is_same_v<Element, double>    ? "numbers"
                                                                  : "integers";
    const std::string each = rule.names.empty() ? describe_range(rule) : " one of " + join(rule.names);
    return "a list of " + what + (each.empty() ? "" : ", each" + each);
  }
}

/// Visits the options of a struct.
template <class Visitor, class Options>
void visit_options(Visitor& v, Options& options) {
  std::remove_const_t<Options>::visit(v, options);
}

}  // namespace convoy
