#include "base/utf8.h"
#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace honeycrisp::text {
namespace {

std::string stream(const std::vector<std::string>& pushes) {
  Utf8Stream s;
  std::string shown;
  for (const std::string& bytes : pushes) shown += s.push(bytes);
  return shown + s.finish();
}

TEST(Utf8Stream, incomplete_character_is_held_back) {
  Utf8Stream s;
  EXPECT_EQ(s.push("a\xF0\x9F"), "a");
  EXPECT_EQ(s.push("\x98"), "");
  EXPECT_EQ(s.push("\x80!"), "😀!");
  EXPECT_EQ(s.finish(), "");
}

TEST(Utf8Stream, bytes_that_cannot_complete_become_one_replacement_per_broken_prefix) {
  EXPECT_EQ(stream({"a\xE4\xBD", "b"}),
            "a\uFFFD"
            "b");                                                       // a cut-off character
  EXPECT_EQ(stream({"\xE4\xBD"}), "\uFFFD");                            // at the end, too
  EXPECT_EQ(stream({"\xFF\xFE"}), "\uFFFD\uFFFD");                      // bytes that begin nothing
  EXPECT_EQ(stream({"\x80"}), "\uFFFD");                                // a stray continuation
  EXPECT_EQ(stream({"\xC0\x80"}), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(stream({"\xED\xA0\x80"}), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(stream({"\xF4\x90\x80\x80"}), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
}

TEST(Utf8Stream, impossible_prefix_is_shown_at_once) {
  Utf8Stream s;
  EXPECT_EQ(s.push("\xE0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(s.push("\xFF"), "\uFFFD");
}

TEST(Utf8Stream, can_be_used_again_after_finish) {
  Utf8Stream s;
  s.push("\xE4");
  s.finish();
  EXPECT_EQ(s.push("é"), "é");
}

RC_GTEST_PROP(Utf8Stream, result_is_valid_and_independent_of_the_cuts, (const std::string& bytes)) {
  std::vector<std::string> single;
  for (const char c : bytes) single.emplace_back(1, c);
  const std::string whole = stream({bytes});
  RC_ASSERT(is_valid_utf8(whole));
  RC_ASSERT(stream(single) == whole);
}

}  // namespace
}  // namespace honeycrisp::text
