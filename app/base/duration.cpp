// SPDX-License-Identifier: Apache-2.0
#include "app/base/duration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace convoy {

namespace {

/// The number that `digits` are, or -1.
std::int64_t number(std::string_view digits, std::size_t least, std::size_t most) {
  const bool fits = digits.size() >= least && digits.size() <= most;
  if (!fits || !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return -1;
  return std::stoll(std::string(digits));
}

}  // namespace

std::optional<std::chrono::seconds> parse_duration(std::string_view text) {
  const std::size_t last = text.rfind(':');
  if (last == std::string_view::npos || last == 0) return std::nullopt;
  const std::size_t first = text.rfind(':', last - 1);
  if (first == std::string_view::npos) return std::nullopt;
  const std::int64_t hours = number(text.substr(0, first), 1, 6);
  const std::int64_t minutes = number(text.substr(first + 1, last - first - 1), 2, 2);
  const std::int64_t seconds = number(text.substr(last + 1), 2, 2);
  if (hours < 0 || minutes < 0 || seconds < 0 || minutes > 59 || seconds > 59) return std::nullopt;
  const std::chrono::seconds total(hours * 3600 + minutes * 60 + seconds);
  if (total.count() == 0) return std::nullopt;
  return total;
}

std::string format_duration(std::chrono::seconds duration) {
  const std::int64_t s = duration.count();
  return fmt::format("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace convoy
