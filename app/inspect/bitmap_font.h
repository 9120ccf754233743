// SPDX-License-Identifier: Apache-2.0
//
// Letters of 5x7 pixels for pictures, in printable ASCII. Invariant: any text can be drawn; what has no glyph is a "?".
#pragma once

#include <string>

namespace convoy {

inline constexpr int kGlyphWidth = 5, kGlyphHeight = 7;

/// Whether the pixel in column x and row y of the character is set.
[[nodiscard]] bool glyph_pixel(char character, int x, int y);

/// The text in the font's characters: one "?" for each other character of UTF-8.
[[nodiscard]] std::string printable(const std::string& text);

}  // namespace convoy
