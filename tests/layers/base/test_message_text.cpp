// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include "layers/base/message_text.h"

using namespace convoy;

TEST_CASE("control characters are shown, not obeyed") {
  for (int code = 0; code < 0x80; ++code) {
    std::string text = "a?b";
    text[1] = static_cast<char>(code);
    const bool control = code < 0x20 || code == 0x7F;
    CAPTURE(code);
    CHECK((name_text(text) == text) == !control);
    CHECK((without_controls(text) == text) == (!control || code == '\n'));
    CHECK(name_text(text).find_first_of("\x1b\a\b\r\n\t\x7f") == std::string::npos);
  }
  CHECK(without_controls("\x1b]0;title\a\x1b[2J") == "\\x1b]0;title\\x07\\x1b[2J");
  CHECK(without_controls("tab\there\rgone") == "tab\\x09here\\x0dgone");
  CHECK(without_controls("\xc2\x9b"
                         "31m") == "\\xc2\\x9b31m");  // CSI, of C1
  CHECK(without_controls("\x9b"
                         "31m") == "\\x9b31m");  // in one byte
  CHECK(without_controls("a\xe2\x80\xae"
                         "b\xe2\x81\xa6") == "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6");  // right to left
}

TEST_CASE("text of any language stays, what is no UTF-8 does not") {
  for (const std::string text : {"", "plain", "Kätzchen", "猫", "кошка", "\xf0\x9f\x90\x88", "a\\x1b"}) {
    CHECK(without_controls(text) == text);
    CHECK(name_text(text) == text);
  }
  CHECK(without_controls("caf\xe9") == "caf\\xe9");              // Latin-1
  CHECK(without_controls("\xc0\xaf") == "\\xc0\\xaf");           // overlong
  CHECK(without_controls("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(without_controls("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(without_controls("\xe2\x82") == "\\xe2\\x82");  // cut short
}

TEST_CASE("no line of a message looks like the first line of another") {
  CHECK(message_text("file \"a\nconvoy: error: b\"\n") == "file \"a\n  convoy: error: b\"\n");
  CHECK(message_text("two\n  lines\n\nand more") == "two\n  lines\n\n  and more");
  CHECK(name_text("a\nb") == "a\\x0ab");
}
