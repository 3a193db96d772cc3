#include "base/text_escape.h"

#include <gtest/gtest.h>

namespace honeycrisp {
namespace {

TEST(EscapeForDisplay, plain_text_stays) {
  for (const std::string text : {"", "model.gguf", "a b", "grüße 你好 🙂", "'\"\\"})
    EXPECT_EQ(escape_for_display(text), text);
}

TEST(EscapeForDisplay, control_characters_and_broken_utf8_become_visible) {
  EXPECT_EQ(escape_for_display("\x1b[31m\n\t\r\x7f"), "\\x1b[31m\\n\\t\\r\\x7f");
  EXPECT_EQ(escape_for_display(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(escape_for_display("a\xff\xc3("), "a\\xff\\xc3(");
  EXPECT_EQ(escape_for_display("\x9b"), "\\x9b");        // a C1 byte by itself is broken UTF-8
  EXPECT_EQ(escape_for_display("\xc2\x9b"), "\\u{9b}");  // and the character CSI is unsafe
  EXPECT_EQ(escape_for_display("\u2028\u202e\u2066"), "\\u{2028}\\u{202e}\\u{2066}");
}

TEST(EscapeForDisplay, every_single_byte_gives_printable_ascii_or_itself) {
  for (int b = 0; b < 256; ++b) {
    const std::string out = escape_for_display(std::string(1, char(b)));
    for (const char c : out) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << b;
  }
}

TEST(EscapeForDisplay, limit_cuts_at_a_character) {
  EXPECT_EQ(escape_for_display("abc", 3), "abc");
  EXPECT_EQ(escape_for_display("abcd", 3), "abc…");
  EXPECT_EQ(escape_for_display("aü", 2), "a…");
  EXPECT_EQ(escape_for_display("aü", 3), "aü");
}

TEST(EscapeForDisplay, escaped_text_is_not_changed_again) {
  const std::string once = escape_for_display("\x1b\xff\n\u2028");
  EXPECT_EQ(escape_for_display(once), once);
}

}  // namespace
}  // namespace honeycrisp
