#include "cli/options.h"

#include "cli/term/messages.h"
#include "cli/term/terminal.h"
#include "cli/text_json.h"

#include <gtest/gtest.h>
#include <limits>

namespace honeycrisp::cli {
namespace {

TEST(LogitBias, EveryFormIsRead) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(parse_logit_bias("42:1.5").value(), std::pair(Token(42), 1.5f));
  EXPECT_EQ(parse_logit_bias("42=-2").value(), std::pair(Token(42), -2.0f));
  EXPECT_EQ(parse_logit_bias("42+1").value(), std::pair(Token(42), 1.0f));
  EXPECT_EQ(parse_logit_bias("42-1").value(), std::pair(Token(42), -1.0f));
  EXPECT_EQ(parse_logit_bias("42-inf").value(), std::pair(Token(42), -infinity));
  EXPECT_EQ(parse_logit_bias("0:-inf").value(), std::pair(Token(0), -infinity));
}

TEST(LogitBias, OtherTextIsRefused) {
  for (const char* text :
       {"", "1", ":1", "1:", "x:1", "1:x", "-1:1", "1:nan", "1:inf", "1:1e99", "1:1 ", "2147483648:1"})
    EXPECT_FALSE(parse_logit_bias(text)) << text;
}

TEST(HumanBytes, ThreeDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(98362432), "98.4 MB");
  EXPECT_EQ(human_bytes(999999999), "1.00 GB");
  EXPECT_EQ(human_bytes(std::numeric_limits<uint64_t>::max()), "18447 PB");
}

TEST(Sanitize, ControlCharactersBecomeVisible) {
  EXPECT_EQ(sanitize_for_terminal("a\n\tb é🍎"), "a\n\tb é🍎");
  EXPECT_EQ(sanitize_for_terminal("\x1b[31m\r\x07\x7f"), "\\x1b[31m\\r\\x07\\x7f");
  EXPECT_EQ(sanitize_for_terminal("\xc2\x9b"
                                  "31m\xff"),
            "\\u{9b}31m\\xff");
}

TEST(ValidUtf8, MalformedBytesAreReplaced) { EXPECT_EQ(valid_utf8("a\xff\xc3"), "a\uFFFD\uFFFD"); }

}  // namespace
}  // namespace honeycrisp::cli
