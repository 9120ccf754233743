// SPDX-License-Identifier: Apache-2.0
#include "app/report/markup.h"

#include <fmt/format.h>

namespace convoy {

namespace {

constexpr std::size_t kColours = 8;
constexpr std::size_t kDashes = 3;

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

}  // namespace

std::string escape(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      case '\t':
      case '\n': result += c; break;
      default: result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
    }
  }
  return result;
}

std::string shorten(std::string_view text, std::size_t most) {
  std::size_t characters = 0, kept = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (continues_character(text[i])) continue;
    if (++characters == most) kept = i;
  }
  if (characters <= most) return std::string(text);
  return std::string(text.substr(0, kept)) + "\xE2\x80\xA6";
}

std::string colour_class(std::size_t run) {
  std::string name = fmt::format("c{}", run % kColours);
  if (run >= kColours) name += fmt::format(" d{}", run / kColours % kDashes);
  return name;
}

}  // namespace convoy
