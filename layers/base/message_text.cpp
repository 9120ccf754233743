// SPDX-License-Identifier: Apache-2.0
//
// UTF-8 by RFC 3629: no surrogates, no overlong forms, nothing above U+10FFFF.
#include "layers/base/message_text.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace convoy {

namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: no UTF-8
};

Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint32_t head = byte(0);
  if (head < 0x80) return {head, 1};
  const std::size_t bytes = head >= 0xF0 ? 4 : head >= 0xE0 ? 3 : 2;
  if (head < 0xC2 || head > 0xF4 || text.size() < bytes) return {};
  std::uint32_t code = head & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3FU);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {};
  return {code, bytes};
}

bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x061C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string escaped(std::string_view text, bool lines) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_of(text);
    const std::size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if ((lines && text.front() == '\n') || (character.bytes > 0 && !is_control(character.code))) {
      result += text.substr(0, bytes);
    } else {
      for (const char byte : text.substr(0, bytes)) result += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(byte));
    }
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace

std::string without_controls(std::string_view text) { return escaped(text, true); }

std::string name_text(std::string_view text) { return escaped(text, false); }

std::string message_text(std::string_view text) {
  std::string result = escaped(text, true);
  for (std::size_t at = 0; (at = result.find('\n', at)) != std::string::npos; ++at) {
    if (at + 1 < result.size() && result[at + 1] != ' ' && result[at + 1] != '\n') result.insert(at + 1, "  ");
  }
  return result;
}

}  // namespace convoy
