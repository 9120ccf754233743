// SPDX-License-Identifier: Apache-2.0
//
// Height and width, as of a window, its stride or its padding. One number stands for both.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace convoy {

struct Size2d {
  /// For options: how a value is written.
  static constexpr std::string_view kDescription = "an integer or [height, width], each";

  std::int64_t height = 0, width = 0;

  constexpr Size2d() = default;
  constexpr Size2d(std::int64_t both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor)
  constexpr Size2d(std::int64_t height_, std::int64_t width_) : height(height_), width(width_) {}

  [[nodiscard]] constexpr bool is_square() const { return height == width; }
  [[nodiscard]] constexpr std::int64_t area() const { return height * width; }
  /// "3", or "[3, 1]".
  [[nodiscard]] std::string str() const {
    return is_square() ? std::to_string(height) : fmt::format("[{}, {}]", height, width);
  }
  bool operator==(const Size2d&) const = default;
  /// For keys of maps. Not with one number, which has no order with two.
  template <std::same_as<Size2d> A, std::same_as<Size2d> B>
  friend constexpr std::strong_ordering operator<=>(const A& a, const B& b) {
    return a.height != b.height ? a.height <=> b.height : a.width <=> b.width;
  }
};

/// The size of a window as an option of a layer: Size2d of images, std::int64_t of signals, whose height is 1.
template <class Size>
struct WindowExtent {
  static constexpr bool kOneDimensional = std::same_as<Size, std::int64_t>;
  static constexpr std::string_view kKernel = kOneDimensional ? "length" : "height and width";
  static constexpr std::string_view kPadding = kOneDimensional ? "added at each end" : "added on each side";

  /// A signal's window has that height.
  static constexpr Size2d window(const Size& size, std::int64_t height) {
    if constexpr (kOneDimensional) {
      return {height, size};
    } else {
      return size;
    }
  }
};

}  // namespace convoy
