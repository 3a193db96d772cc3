#include "text/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <set>
#include <string>

namespace honeycrisp::text {
namespace {

PreTokenizer make(std::string_view name) { return *PreTokenizer::create(*find_pre_tokenizer(name)); }

std::vector<std::string> chunks(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::vector<std::string> result;
  size_t begin = 0;
  const std::vector<uint32_t> ends = pre_tokenizer.split(text).value();
  for (const uint32_t end : ends) {
    result.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return result;
}
std::vector<std::string> chunks(std::string_view name, std::string_view text) { return chunks(make(name), text); }

using Chunks = std::vector<std::string>;

TEST(PreTokenizer, gpt2_takes_a_space_into_the_word) {
  EXPECT_EQ(chunks("gpt-2", "Hello world  x"), (Chunks{"Hello", " world", " ", " x"}));
  EXPECT_EQ(chunks("gpt-2", "don't I'LL 2024!"), (Chunks{"don", "'t", " I", "'", "LL", " 2024", "!"}));
  EXPECT_EQ(chunks("gpt-2", "a \n\n b"), (Chunks{"a", " \n\n", " b"}));
}

TEST(PreTokenizer, smollm_splits_every_digit) {
  EXPECT_EQ(chunks("smollm", "in 2024"), (Chunks{"in", " ", "2", "0", "2", "4"}));
}

TEST(PreTokenizer, llama3_takes_digits_in_threes_from_the_left) {
  EXPECT_EQ(chunks("llama-bpe", "1234567 I'LL"), (Chunks{"123", "456", "7", " I", "'LL"}));
  EXPECT_EQ(chunks("llama-bpe", "(x):\n  y"), (Chunks{"(x", "):\n", " ", " y"}));
}

TEST(PreTokenizer, qwen2_and_qwen35_differ_in_combining_marks) {
  EXPECT_EQ(chunks("qwen2", "e\u0301a 12"), (Chunks{"e", "\u0301a", " ", "1", "2"}));
  EXPECT_EQ(chunks("qwen35", "e\u0301a 12"), (Chunks{"e\u0301a", " ", "1", "2"}));
}

TEST(PreTokenizer, o200k_cuts_where_upper_case_begins_again) {
  EXPECT_EQ(chunks("gpt-4o", "camelCase HTTPServer it's"), (Chunks{"camel", "Case", " HTTPServer", " it's"}));
  EXPECT_EQ(chunks("gpt-4o", "àÉ http://x"), (Chunks{"à", "É", " http", "://", "x"}));
  EXPECT_EQ(chunks("tekken", "it's 123"), (Chunks{"it", "'s", " ", "1", "2", "3"}));
}

TEST(PreTokenizer, deepseek_v3_separates_han_from_letters) {
  EXPECT_EQ(chunks("deepseek-v3", "abc你好1234#def"), (Chunks{"abc", "你好", "123", "4", "#def"}));
}

TEST(PreTokenizer, threes_from_the_right_have_the_short_group_first) {
  EXPECT_EQ(chunks("superbpe", "1234567"), (Chunks{"1", "234", "567"}));
  EXPECT_EQ(chunks("superbpe", "x12y123"), (Chunks{"x", "12", "y", "123"}));
}

TEST(PreTokenizer, gemma4_splits_at_line_feeds_only) {
  EXPECT_EQ(chunks("gemma4", "a b\n\nc\r\n"), (Chunks{"a b", "\n\n", "c\r", "\n"}));
}

TEST(PreTokenizer, mongolian_vowel_separator_is_no_white_space) {
  EXPECT_EQ(chunks("gpt-2", "!\u180E"), (Chunks{"!\u180E"}));
}

TEST(PreTokenizer, malformed_bytes_are_chunks_of_their_own) {
  EXPECT_EQ(chunks("gpt-2",
                   "ab\xFF\xFE"
                   "cd \xE4"),
            (Chunks{"ab", "\xFF\xFE", "cd", " ", "\xE4"}));
}

TEST(PreTokenizer, empty_text_has_no_chunks) { EXPECT_THAT(chunks("gpt-2", ""), testing::IsEmpty()); }

TEST(PreTokenizer, names_are_unique_and_unknown_ones_are_not_found) {
  std::set<std::string_view> names;
  for (const PreTokenizerRule& rule : all_pre_tokenizers()) EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
  EXPECT_EQ(find_pre_tokenizer("no-such"), nullptr);
}

TEST(PreTokenizer, every_rule_stands_long_repetition) {
  std::set<const std::string_view*> seen;
  for (const PreTokenizerRule& rule : all_pre_tokenizers()) {
    if (!seen.insert(rule.patterns.data()).second) continue;  // the patterns of another name
    const PreTokenizer pre_tokenizer = PreTokenizer::create(rule).value();
    for (const std::string_view unit : {"A", "a", " ", "\n", " \n", "_", "你", "1", "a\u0301", "A\u0301", "é ", "'"}) {
      std::string text;
      for (int i = 0; i < 30'000; ++i) text += unit;
      text += "x";
      const Result<std::vector<uint32_t>> ends = pre_tokenizer.split(text);
      ASSERT_TRUE(ends) << rule.name << " '" << unit << "': " << ends.error().message;
      EXPECT_EQ(ends->back(), text.size());
    }
  }
}

RC_GTEST_PROP(PreTokenizer, chunks_cover_the_text_in_order, ()) {
  static const std::vector<PreTokenizer> all = [] {
    std::vector<PreTokenizer> made;
    for (const PreTokenizerRule& rule : all_pre_tokenizers()) made.push_back(PreTokenizer::create(rule).value());
    return made;
  }();
  const std::vector<std::string> parts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("a", "B", "é", "你", "1", " ", "\n", "\t", "'s", "!", "\u0301", "\xFF", "😀", "_"));
  std::string text;
  for (const std::string& part : parts) text += part;
  for (const PreTokenizer& pre_tokenizer : all) {
    uint32_t last = 0;
    const std::vector<uint32_t> ends = pre_tokenizer.split(text).value();
    for (const uint32_t end : ends) {
      RC_ASSERT(end > last);
      last = end;
    }
    RC_ASSERT(last == text.size());
  }
}

}  // namespace
}  // namespace honeycrisp::text
