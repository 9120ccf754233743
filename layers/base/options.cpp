// SPDX-License-Identifier: Apache-2.0
//
// Rules: which values they allow, and their description.
#include "layers/base/options.h"

#include <algorithm>
#include <cmath>

namespace convoy {

Rule Rule::only_for(std::string_view chooser, std::string_view value, std::span<const std::string_view> owners) const {
  return only_if(std::find(owners.begin(), owners.end(), value) != owners.end(),
                 fmt::format("is ignored with {} = \"{}\" (it belongs to {})", chooser, value, join(owners)));
}

std::string describe_range(const Rule& rule) {
  const bool low = std::isfinite(rule.minimum), high = std::isfinite(rule.maximum);
  const auto number = [](double x) { return std::abs(x) < 1e10 ? fmt::format("{}", x) : fmt::format("{:g}", x); };
  if (low && high && !rule.open_minimum && !rule.open_maximum) {
    return fmt::format(" from {} to {}", number(rule.minimum), number(rule.maximum));
  }
  std::string text;
  if (low) text += fmt::format("{} {}", rule.open_minimum ? " above" : " of at least", number(rule.minimum));
  if (low && high) text += " and";
  if (high) text += fmt::format("{} {}", rule.open_maximum ? " below" : " of at most", number(rule.maximum));
  return text;
}

bool in_range(const Rule& rule, double value) {
  const bool low = rule.open_minimum ? value > rule.minimum : value >= rule.minimum;
  const bool high = rule.open_maximum ? value < rule.maximum : value <= rule.maximum;
  return low && high;
}

}  // namespace convoy
