// SPDX-License-Identifier: Apache-2.0
#include "app/base/option_checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>

namespace convoy {

CLI::Validator number_between(double low, double high, const std::string& range) {
  const auto check = [low, high](const std::string& text) {
    double value = std::numeric_limits<double>::quiet_NaN();
    const bool good = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;  // no NaN is
    return good ? "" : fmt::format("{} is not a number from {} to {}", text, low, high);
  };
  return {check, range};
}

CLI::Validator unsigned_number() {
  const auto check = [](const std::string& text) {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    const bool octal = text.size() > 1 && text.front() == '0';  // as CLI11 would read it
    if (error == std::errc() && stop == end && !octal) return std::string();
    return fmt::format("{} is not an integer from 0 to {}", text, std::numeric_limits<std::uint64_t>::max());
  };
  return {check, ""};
}

void refuse_empty_values(CLI::App& app) {
  const CLI::Validator filled(
      [](const std::string& text) { return text.empty() ? std::string("the value is empty") : std::string(); }, "");
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options([](CLI::Option*) { return true; })) {
      const bool flag = option->get_items_expected_max() == 0;
      if (!flag && option->get_name() != "--launcher-args") option->check(filled);
    }
  }
}

std::vector<std::string> with_empty_values(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> result;
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    const bool empty = word.starts_with("--") && word.size() == name.size() + 1;
    const CLI::Option* const option = empty ? command.get_option_no_throw(name) : nullptr;
    if (option != nullptr && option->get_items_expected_max() > 0) {
      result.insert(result.end(), {name, ""});
    } else {
      result.push_back(word);
    }
  }
  return result;
}

}  // namespace convoy
