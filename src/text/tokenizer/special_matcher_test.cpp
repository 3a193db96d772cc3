#include "text/tokenizer/special_matcher.h"

#include "text/tokenizer/testing_vocabulary.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace honeycrisp::text {

static bool operator==(const Fragment& a, const Fragment& b) {
  return a.token == b.token && a.begin == b.begin && a.end == b.end;
}
static std::ostream& operator<<(std::ostream& out, const Fragment& f) {
  return out << f.token << '[' << f.begin << ',' << f.end << ')';
}

namespace {

Vocabulary make_vocabulary(const std::vector<std::pair<std::string, TokenType>>& tokens) {
  TestingVocabulary v;
  for (const auto& [text, type] : tokens) v.add(text, type);
  v.writer.add_strings("tokenizer.ggml.tokens", v.tokens);
  v.writer.add_int32s("tokenizer.ggml.token_type", v.types);
  const std::vector<std::byte> bytes = v.writer.to_bytes();
  return *Vocabulary::load(gguf::parse(bytes, "test")->metadata);
}

std::vector<Fragment> cut(const Vocabulary& v, std::string_view text, std::vector<TrustedRange> trusted) {
  return SpecialMatcher(v, {}).cut(text, trusted);
}

constexpr TokenType kControl = TokenType::kControl, kUser = TokenType::kUserDefined;

TEST(SpecialMatcher, text_between_tokens_is_kept) {
  const Vocabulary v = make_vocabulary({{"<a>", kControl}, {"x", TokenType::kNormal}});
  EXPECT_EQ(cut(v, "x<a>y", {{0, 5}}), (std::vector<Fragment>{{kNoToken, 0, 1}, {0, 1, 4}, {kNoToken, 4, 5}}));
  EXPECT_EQ(cut(v, "<a><a>", {{0, 6}}), (std::vector<Fragment>{{0, 0, 3}, {0, 3, 6}}));
  EXPECT_TRUE(cut(v, "", {}).empty());
}

TEST(SpecialMatcher, longest_token_wins_even_if_it_begins_later) {
  const Vocabulary v = make_vocabulary({{"ab", kUser}, {"bcd", kUser}});
  EXPECT_EQ(cut(v, "abcd", {}), (std::vector<Fragment>{{kNoToken, 0, 1}, {1, 1, 4}}));
}

TEST(SpecialMatcher, shorter_token_fits_in_what_a_longer_one_left) {
  const Vocabulary v = make_vocabulary({{"aaa", kUser}, {"a", kUser}, {"aa", kUser}});
  EXPECT_EQ(cut(v, "aaaaaaaa", {}), (std::vector<Fragment>{{0, 0, 3}, {0, 3, 6}, {2, 6, 8}}));
}

TEST(SpecialMatcher, control_token_is_believed_only_wholly_inside_trusted_text) {
  const Vocabulary v = make_vocabulary({{"<a>", kControl}, {"<u>", kUser}, {"<?>", TokenType::kUnknown}});
  const std::vector<Fragment> plain = {{kNoToken, 0, 3}};
  EXPECT_EQ(cut(v, "<a>", {}), plain);
  EXPECT_EQ(cut(v, "<a>", {{0, 2}}), plain);
  EXPECT_EQ(cut(v, "<a>", {{1, 3}}), plain);
  EXPECT_EQ(cut(v, "<a>", {{0, 1}, {2, 3}}), plain);
  EXPECT_EQ(cut(v, "<?>", {}), plain);
  EXPECT_EQ(cut(v, "<u>", {}), (std::vector<Fragment>{{1, 0, 3}}));
}

TEST(SpecialMatcher, token_that_strips_swallows_the_white_space_behind_it) {
  const Vocabulary v = make_vocabulary({{"<a>", kControl}, {"<b>", kControl}});
  const TokenId strips[] = {0};
  const TrustedRange all{0, 13};
  EXPECT_EQ(SpecialMatcher(v, strips).cut("<a> \n\tx<b>  y", {&all, 1}),
            (std::vector<Fragment>{{0, 0, 6}, {kNoToken, 6, 7}, {1, 7, 10}, {kNoToken, 10, 13}}));
}

/// The rule as the reference states it: one pass over the free text for each token, longest first.
std::vector<Fragment> cut_slowly(const std::vector<std::string>& tokens, std::string_view text) {
  std::vector<TokenId> order;
  for (size_t i = 0; i < tokens.size(); ++i) order.push_back(TokenId(i));
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    const size_t a_size = tokens[size_t(a)].size(), b_size = tokens[size_t(b)].size();
    return a_size != b_size ? a_size > b_size : a < b;
  });
  std::vector<Fragment> fragments;
  if (!text.empty()) fragments.push_back({kNoToken, 0, text.size()});
  for (const TokenId id : order) {
    const std::string& token = tokens[size_t(id)];
    std::vector<Fragment> next;
    for (Fragment f : fragments) {
      while (f.token == kNoToken && f.begin < f.end) {
        const size_t at = text.substr(0, f.end).find(token, f.begin);
        if (at == std::string_view::npos) break;
        if (at > f.begin) next.push_back({kNoToken, f.begin, at});
        next.push_back({id, at, at + token.size()});
        f.begin = at + token.size();
      }
      if (f.begin < f.end) next.push_back(f);
    }
    fragments = std::move(next);
  }
  return fragments;
}

RC_GTEST_PROP(SpecialMatcher, cuts_as_one_pass_per_token_would, ()) {
  const auto letters = rc::gen::element('a', 'b', 'c');
  std::vector<std::string> tokens = *rc::gen::container<std::vector<std::string>>(
      rc::gen::nonEmpty(rc::gen::resize(5, rc::gen::container<std::string>(letters))));
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  const std::string text = *rc::gen::container<std::string>(letters);
  std::vector<std::pair<std::string, TokenType>> typed;
  for (const std::string& token : tokens) typed.emplace_back(token, kUser);
  typed.emplace_back("unused", TokenType::kNormal);
  RC_ASSERT(cut(make_vocabulary(typed), text, {}) == cut_slowly(tokens, text));
}

}  // namespace
}  // namespace honeycrisp::text
