// SPDX-License-Identifier: Apache-2.0
#include "app/base/expand_variables.h"

#include <algorithm>
#include <cstdlib>

#include "layers/base/error.h"

namespace convoy {

namespace {

bool in_name(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

}  // namespace

std::string expand_variables(const std::string& text, const VariableLookup& value) {
  std::string result;
  auto at = text.begin();
  while (true) {
    const auto dollar = std::find(at, text.end(), '$');
    result.append(at, dollar);
    if (dollar == text.end()) return result;
    const bool braces = dollar + 1 != text.end() && dollar[1] == '{';
    const auto first = dollar + (braces ? 2 : 1);
    const auto last = std::find_if_not(first, text.end(), in_name);
    const bool closed = !braces || (last != text.end() && *last == '}');
    if (first == last || !closed || (*first >= '0' && *first <= '9')) {
      fail_usage("\"{}\" has a '$' without a variable's name (must be $NAME or ${{NAME}})", text);
    }
    const std::string name(first, last);
    const std::optional<std::string> found = value(name);
    if (!found || found->empty()) {
      fail_usage("${} in \"{}\" is {} (set it, or name a folder)", name, text, found ? "empty" : "not set");
    }
    result += *found;
    at = last + (braces ? 1 : 0);
  }
}

std::optional<std::string> process_variable(const std::string& name) {
  const char* found = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return found == nullptr ? std::nullopt : std::optional<std::string>(found);
}

}  // namespace convoy
