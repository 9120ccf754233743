// SPDX-License-Identifier: Apache-2.0
//
// Edit distance by dynamic programming over whole words; names are short, so clarity wins over speed.
#include "layers/base/did_you_mean.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace convoy {

namespace {

std::string folded(std::string_view word) {
  std::string result(word);
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > 64) return {};
  const std::string wanted = folded(word);
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string result;
  for (const std::string_view name : known) {
    const std::size_t distance = edit_distance(wanted, folded(name));
    if (distance < best && distance < std::max(word.size(), name.size())) {
      best = distance;
      result = name;
    }
  }
  return result;
}

// An empty name is shown as "".
std::string join(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text += ", ";
    text += name.empty() ? "\"\"" : name;
  }
  return text;
}

}  // namespace convoy
