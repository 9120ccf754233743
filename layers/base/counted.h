// SPDX-License-Identifier: Apache-2.0
//
// Numbers of things in messages: "1 image", "2 images", "3 classes".
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace convoy {

/// `thing` in the plural, by the rules of English spelling: image -> images, class -> classes, entry -> entries,
/// batch -> batches, epoch -> epochs.
[[nodiscard]] inline std::string plural(std::string_view thing) {
  const auto ends = [&](std::string_view ending) { return thing.ends_with(ending); };
  const bool soft_ch = ends("ch") && !ends("och");  // batches, but epochs
  if (ends("s") || ends("x") || soft_ch || ends("sh")) return std::string(thing) + "es";
  const bool consonant_y = thing.size() > 1 && ends("y") &&
                           std::string_view("aeiou").find(thing[thing.size() - 2]) == std::string_view::npos;
  if (consonant_y) return std::string(thing.substr(0, thing.size() - 1)) + "ies";
  return std::string(thing) + "s";
}

/// "1 image", "0 images".
[[nodiscard]] std::string counted(std::integral auto count, std::string_view thing) {
  return fmt::format("{} {}", count, count == 1 ? std::string(thing) : plural(thing));
}

}  // namespace convoy
