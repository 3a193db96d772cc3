#include "base/utf8.h"

#include <gtest/gtest.h>

namespace honeycrisp {
namespace {

TEST(Utf8, every_code_point_round_trips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;  // surrogates are no characters
    std::string text;
    append_utf8(text, c);
    const Utf8Char decoded = decode_utf8(text, 0);
    ASSERT_TRUE(decoded.valid) << uint32_t(c);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.length, text.size());
  }
}

TEST(Utf8, malformed_bytes_are_taken_one_at_a_time) {
  const std::string_view cases[] = {
      "\x80",              // continuation alone
      "\xC0\xAF",          // overlong
      "\xC1\xBF",          // overlong
      "\xE0\x80\xAF",      // overlong
      "\xF0\x80\x80\xAF",  // overlong
      "\xED\xA0\x80",      // surrogate
      "\xF4\x90\x80\x80",  // above U+10FFFF
      "\xF5\x80\x80\x80",  // no such lead byte
      "\xFF",
      "\xC3(",         // continuation missing
      "\xE2\x82",      // cut
      "\xF0\x9F\x99",  // cut
      "\xC3",          // cut
  };
  for (const std::string_view text : cases) {
    const Utf8Char c = decode_utf8(text, 0);
    EXPECT_FALSE(c.valid);
    EXPECT_EQ(c.length, 1u);
    EXPECT_EQ(c.code_point, char32_t{0xFFFD});
    EXPECT_FALSE(is_valid_utf8(text));
    EXPECT_FALSE(is_valid_utf8("ok " + std::string(text)));
  }
}

TEST(Utf8, valid_texts_are_valid) {
  for (const std::string_view text : {"", "abc", "grüße", "你好", "🙂", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_TRUE(is_valid_utf8(std::string_view("\0", 1)));
}

}  // namespace
}  // namespace honeycrisp
