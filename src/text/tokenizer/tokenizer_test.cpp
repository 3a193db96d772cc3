#include "text/tokenizer.h"

#include "text/tokenizer/testing_vocabulary.h"
#include <honeycrisp/log.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace honeycrisp::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ids = std::vector<TokenId>;

Ids encode(const Tokenizer& t, std::string_view text, bool parse_special = false) {
  return t.encode(text, parse_special).value();
}
/// The texts of the tokens, joined by '|'.
std::string pieces(const Tokenizer& t, const Ids& ids) {
  std::string joined;
  for (const TokenId id : ids) joined += (joined.empty() ? "" : "|") + std::string(t.token_text(id));
  return joined;
}
std::string pieces(const Tokenizer& t, std::string_view text, bool parse_special = false) {
  return pieces(t, encode(t, text, parse_special));
}

/// Collects warnings while it lives.
class Warnings {
 public:
  Warnings() {
    set_log_handler([this](LogLevel level, const std::string& message) {
      if (level == LogLevel::kWarning) messages.push_back(message);
    });
  }
  ~Warnings() { set_log_handler({}); }
  std::vector<std::string> messages;
};

TEST(ByteLevelBpe, merges_by_rank) {
  const Tokenizer t = chatml_vocabulary().must_load();
  EXPECT_EQ(pieces(t, "hello world"), "hello|\u0120world");
  EXPECT_EQ(pieces(t, "hell"), "hell");
  EXPECT_EQ(pieces(t, "heheh"), "he|he|h");
}

TEST(ByteLevelBpe, equal_ranks_merge_from_the_left) {
  const Tokenizer t = chatml_vocabulary().must_load();
  EXPECT_EQ(pieces(t, "aaa"), "aa|a");
  EXPECT_EQ(pieces(t, "aaaaaaa"), "aaaa|aa|a");
}

TEST(ByteLevelBpe, chunk_that_is_a_token_is_taken_whole_only_where_merges_are_ignored) {
  TestingVocabulary plain = chatml_vocabulary("qwen2"), whole = chatml_vocabulary("llama-bpe");
  for (TestingVocabulary* v : {&plain, &whole}) v->add("zzz");  // no merge leads to it
  EXPECT_EQ(pieces(plain.must_load(), "zzz"), "z|z|z");
  EXPECT_EQ(pieces(whole.must_load(), "zzz"), "zzz");
}

TEST(ByteLevelBpe, merges_never_make_a_control_token) {
  TestingVocabulary v = chatml_vocabulary("bloom");  // whose pattern keeps <x> in one chunk
  v.add("<x>", TokenType::kControl);
  v.merge("<", "x");
  v.merge("<x", ">");
  EXPECT_EQ(pieces(v.must_load(), "<x>"), "<x|>");
}

TEST(ByteLevelBpe, byte_without_a_token_is_left_out) {
  TestingVocabulary v;
  v.add("a");
  v.add("b");
  v.merge("a", "b");
  v.writer.add_string("tokenizer.ggml.pre", "gpt-2");
  EXPECT_EQ(pieces(v.must_load(), "abéa"), "ab|a");
}

TEST(Special, control_tokens_are_characters_unless_parsed) {
  const Tokenizer t = chatml_vocabulary().must_load();
  EXPECT_THAT(encode(t, "a<|im_end|>"), testing::Not(testing::Contains(2)));
  EXPECT_EQ(t.decode(encode(t, "a<|im_end|>"), false), "a<|im_end|>");
  EXPECT_EQ(pieces(t, "a<|im_end|>", true), "a|<|im_end|>");
}

TEST(Special, user_defined_tokens_are_always_recognised) {
  const Tokenizer t = chatml_vocabulary().must_load();
  EXPECT_EQ(pieces(t, "a<think>"), "a|<think>");
  const Segment input[] = {{"<think>", true}};
  EXPECT_EQ(pieces(t, t.encode(input).value()), "<think>");
}

TEST(Segments, control_tokens_in_input_stay_characters) {
  const Tokenizer t = chatml_vocabulary().must_load();
  const Segment segments[] = {{"<|im_start|>", false}, {"x<|im_end|>y", true}, {"<|im_end|>", false}};
  const Ids ids = t.encode(segments).value();
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 1);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(t.decode(ids, true), "<|im_start|>x<|im_end|>y<|im_end|>");
}

TEST(Segments, no_control_token_forms_across_a_boundary) {
  const Tokenizer t = chatml_vocabulary().must_load();
  const Segment tail[] = {{"<|im_", false}, {"end|>", true}}, head[] = {{"<|im_", true}, {"end|>", false}},
                middle[] = {{"<|im", false}, {"_", true}, {"end|>", false}},
                markup[] = {{"<|im_", false}, {"end|>", false}};
  EXPECT_THAT(t.encode(tail).value(), testing::Not(testing::Contains(2)));
  EXPECT_THAT(t.encode(head).value(), testing::Not(testing::Contains(2)));
  EXPECT_THAT(t.encode(middle).value(), testing::Not(testing::Contains(2)));
  EXPECT_THAT(t.encode(markup).value(), ElementsAre(2));  // both pieces are the template's own
}

TEST(Segments, text_merges_across_boundaries_as_in_one_string) {
  const Tokenizer t = chatml_vocabulary().must_load();
  const Segment segments[] = {{"he", true}, {"llo.", false}, {"", true}, {"\n<|im_end|>", false}};
  EXPECT_EQ(t.encode(segments).value(), encode(t, "hello.\n<|im_end|>", true));
  EXPECT_EQ(pieces(t, t.encode(segments).value()), "hello|.\u010A|<|im_end|>");
  EXPECT_THAT(t.encode(std::span<const Segment>()).value(), IsEmpty());
}

TEST(SentencePiece, highest_score_merges_first) {
  const Tokenizer t = llama_vocabulary().must_load();
  EXPECT_EQ(pieces(t, "hello world"), "\u2581hello|\u2581world");
  EXPECT_EQ(pieces(t, "é"), "\u2581|<0xC3>|<0xA9>");
}

TEST(SentencePiece, space_prefix_follows_its_key) {
  TestingVocabulary v = llama_vocabulary();
  v.writer.add_bool("tokenizer.ggml.add_space_prefix", false);
  const Tokenizer t = v.must_load();
  EXPECT_EQ(pieces(t, "hello"), "he|llo");
  EXPECT_EQ(t.decode(encode(t, " hello"), false), " hello");
}

TEST(SentencePiece, prefix_is_added_after_special_tokens_and_taken_away_again) {
  const Tokenizer t = llama_vocabulary().must_load();
  EXPECT_EQ(pieces(t, "hello</s>hello", true), "\u2581hello|</s>|\u2581hello");
  EXPECT_EQ(t.decode(encode(t, "hello</s> hello", true), true), "hello</s> hello");
}

TEST(SentencePiece, plain_text_never_merges_into_a_control_token) {
  const Tokenizer t = llama_vocabulary().must_load();  // "</" and "s>" are tokens, "</s>" is the end of the sequence
  EXPECT_THAT(encode(t, "</s>"), testing::Not(testing::Contains(2)));
}

TEST(SentencePiece, character_without_bytes_becomes_unknown) {
  TestingVocabulary v;
  v.model = "llama";
  v.add("<unk>", TokenType::kUnknown);
  v.add("\u2581");
  v.add("a");
  const Tokenizer t = v.must_load();
  EXPECT_EQ(pieces(t, "aéa"), "\u2581|a|<unk>|a");
}

TestingVocabulary gemma4_vocabulary() {
  TestingVocabulary v;
  v.model = "gemma4";
  v.add("<pad>", TokenType::kControl);
  v.add("<eos>", TokenType::kControl);
  v.add("<bos>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) v.add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  for (const char* c : {"\u2581", "a", "b", "\n", "\n\n\n"}) v.add(c);
  v.merge("\u2581", "a");
  v.merge("b", "\u2581a");
  v.writer.add_uint32("tokenizer.ggml.bos_token_id", 2);
  v.writer.add_uint32("tokenizer.ggml.eos_token_id", 1);
  return v;
}

TEST(Gemma4, merges_across_spaces_and_falls_back_to_bytes) {
  const Tokenizer t = gemma4_vocabulary().must_load();
  EXPECT_EQ(pieces(t, "b a"), "b\u2581a");
  EXPECT_EQ(pieces(t, "é\n\n\n\n"), "<0xC3>|<0xA9>|\n|\n|\n|\n");
  EXPECT_EQ(pieces(t, "a\n\n\nb"), "a|\n\n\n|b");  // a run that is a token is taken whole
  EXPECT_EQ(t.decode(encode(t, "b aé\n"), false), "b aé\n");
}

TEST(Gemma4, bos_is_added_even_if_the_file_says_no) {
  TestingVocabulary v = gemma4_vocabulary();
  v.writer.add_bool("tokenizer.ggml.add_bos_token", false);
  Warnings warnings;
  EXPECT_TRUE(v.must_load().special().add_bos);
  EXPECT_THAT(warnings.messages, ElementsAre(HasSubstr("add_bos_token")));
}

TEST(Phi3, special_tokens_swallow_the_white_space_behind_them) {
  TestingVocabulary v = llama_vocabulary();
  const TokenId end = v.add("<|end|>", TokenType::kControl);
  v.writer.add_string("general.name", "My Phi-3 tune");
  const Tokenizer t = v.must_load();
  EXPECT_EQ(encode(t, "<|end|> \n</s> a", true), (Ids{end, 2, *t.find("\u2581"), *t.find("a")}));
}

TEST(Decode, hides_control_tokens_unless_asked) {
  const Tokenizer t = chatml_vocabulary().must_load();
  const Ids ids = {1, *t.find("hello"), 2, 999999, -1};
  EXPECT_EQ(t.decode(ids, false), "hello");
  EXPECT_EQ(t.decode(ids, true), "<|im_start|>hello<|im_end|>");
  EXPECT_EQ(t.token_bytes(2, false), "");
  EXPECT_EQ(t.token_bytes(*t.find("\u0120world"), false), " world");
  EXPECT_EQ(t.token_text(-1), "");
  EXPECT_EQ(t.find("no such token"), std::nullopt);
}

TEST(Load, kind_none_has_no_vocabulary) {
  gguf::Writer writer;
  writer.add_string("tokenizer.ggml.model", "none");
  const Tokenizer t = TestingVocabulary::load_from(writer).value();
  EXPECT_FALSE(t.has_vocabulary());
  EXPECT_EQ(t.vocabulary_size(), 0u);
  EXPECT_EQ(t.find("a"), std::nullopt);
  EXPECT_EQ(t.decode(Ids{1}, true), "");
  EXPECT_THAT(t.encode("a", true).error().message, HasSubstr("no vocabulary"));
}

TEST(Load, unimplemented_kind_is_refused_by_name) {
  for (const char* kind : {"bert", "t5", "rwkv", "plamo2", "invented"}) {
    gguf::Writer writer;
    writer.add_string("tokenizer.ggml.model", kind);
    const Result<Tokenizer> t = TestingVocabulary::load_from(writer);
    ASSERT_FALSE(t);
    EXPECT_EQ(t.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(t.error().message, HasSubstr(kind));
  }
}

TEST(Load, unknown_pre_tokenizer_warns_and_uses_the_default) {
  Warnings warnings;
  EXPECT_EQ(chatml_vocabulary("from-the-future").must_load().pre(), "default");
  EXPECT_THAT(warnings.messages, ElementsAre(HasSubstr("'from-the-future' is not known")));
}

/// Expects that loading fails with a message that holds `part`.
void expect_refused(TestingVocabulary v, const std::string& part) {
  const Result<Tokenizer> t = v.load();
  ASSERT_FALSE(t) << part;
  EXPECT_EQ(t.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(t.error().message, HasSubstr(part));
}

TEST(Load, contradictory_lists_are_refused_by_name) {
  TestingVocabulary types = chatml_vocabulary(), scores = llama_vocabulary(), merge = chatml_vocabulary(),
                    unknown = chatml_vocabulary(), byte = llama_vocabulary(), type = chatml_vocabulary(),
                    nan = llama_vocabulary(), empty;
  types.types.pop_back();
  expect_refused(std::move(types), "tokenizer.ggml.token_type has 274 elements for 275 tokens");
  scores.scores.push_back(0);
  expect_refused(std::move(scores), "tokenizer.ggml.scores has");
  merge.merges[3] = "hello";
  expect_refused(std::move(merge), "tokenizer.ggml.merges[3] 'hello' has no space");
  unknown.merges[0] = "l nothing";
  expect_refused(std::move(unknown), "tokenizer.ggml.merges[0] 'l nothing'");
  byte.add("<0xG0>", TokenType::kByte);
  expect_refused(std::move(byte), "'<0xG0>', not <0xNN>");
  type.types[5] = 7;
  expect_refused(std::move(type), "tokenizer.ggml.token_type[5]");
  nan.scores[4] = std::numeric_limits<float>::quiet_NaN();
  expect_refused(std::move(nan), "tokenizer.ggml.scores[4]");
  expect_refused(std::move(empty), "tokenizer.ggml.tokens is empty");
}

TEST(Load, missing_lists_are_refused_by_name) {
  gguf::Writer no_tokens, no_merges, wrong_type;
  for (gguf::Writer* writer : {&no_tokens, &no_merges, &wrong_type}) {
    writer->add_string("tokenizer.ggml.model", "gpt2");
    writer->add_string("tokenizer.ggml.pre", "gpt-2");
  }
  const std::string a[] = {"a"};
  no_merges.add_strings("tokenizer.ggml.tokens", a);
  wrong_type.add_string("tokenizer.ggml.tokens", "a");
  EXPECT_THAT(TestingVocabulary::load_from(no_tokens).error().message, HasSubstr("tokenizer.ggml.tokens is missing"));
  EXPECT_THAT(TestingVocabulary::load_from(no_merges).error().message, HasSubstr("tokenizer.ggml.merges is missing"));
  EXPECT_THAT(TestingVocabulary::load_from(wrong_type).error().message, HasSubstr("not an array of strings"));
}

TEST(Load, of_duplicate_tokens_the_last_is_used) {
  TestingVocabulary v = chatml_vocabulary();
  const TokenId second = v.add("hello");
  Warnings warnings;
  const Tokenizer t = v.must_load();
  EXPECT_THAT(encode(t, "hello"), ElementsAre(second));
  EXPECT_THAT(warnings.messages, ElementsAre(HasSubstr("1 duplicate")));
}

TEST(Load, empty_tokens_get_a_name_and_never_match) {
  TestingVocabulary v = chatml_vocabulary();
  const TokenId id = v.add("", TokenType::kUserDefined);
  Warnings warnings;
  EXPECT_EQ(v.must_load().token_text(id), fmt::format("[EMPTY_{}]", id));
}

TEST(SpecialTokens, explicit_id_outside_the_vocabulary_is_an_error) {
  for (const char* key : {"bos", "eos", "eot", "eom", "unknown", "padding"}) {
    TestingVocabulary v = llama_vocabulary();
    v.writer.add_uint32(fmt::format("tokenizer.ggml.{}_token_id", key), 0xFFFFFFFFu);
    expect_refused(std::move(v), fmt::format("tokenizer.ggml.{}_token_id is 4294967295", key));
  }
}

TEST(SpecialTokens, defaults_of_the_kind_are_taken_only_where_they_are_control_tokens) {
  const SpecialTokens llama = llama_vocabulary().must_load().special();
  EXPECT_EQ(llama.bos, 1);
  EXPECT_EQ(llama.eos, 2);
  EXPECT_EQ(llama.unk, 0);
  EXPECT_TRUE(llama.add_bos);
  const SpecialTokens chatml = chatml_vocabulary().must_load().special();
  EXPECT_EQ(chatml.bos, std::nullopt);  // 11 is a letter here
  EXPECT_FALSE(chatml.add_bos);
}

TEST(SpecialTokens, vocabulary_of_one_word_has_no_special_tokens) {
  TestingVocabulary v;
  v.model = "llama";
  v.add("a");
  Warnings warnings;
  const Tokenizer t = v.must_load();
  EXPECT_EQ(t.special().bos, std::nullopt);
  EXPECT_FALSE(t.special().add_bos);
  EXPECT_THAT(t.special().end_of_generation, IsEmpty());
  EXPECT_THAT(encode(t, "b"), IsEmpty());
}

TEST(SpecialTokens, end_of_generation_is_the_union_of_keys_and_known_markers) {
  TestingVocabulary v = chatml_vocabulary();
  const TokenId own = v.add("<my_end>", TokenType::kControl);
  v.add("</s>", TokenType::kUserDefined);   // HTML, not a marker
  v.add("<|eot_id|>", TokenType::kNormal);  // nor this
  v.writer.add_uint32("tokenizer.ggml.eot_token_id", uint32_t(own));
  const Tokenizer t = v.must_load();
  EXPECT_THAT(t.special().end_of_generation, ElementsAre(0, 2, own));
  EXPECT_TRUE(t.is_end_of_generation(own));
  EXPECT_FALSE(t.is_end_of_generation(1));
  EXPECT_FALSE(t.is_end_of_generation(-1));
}

TEST(SpecialTokens, message_end_of_harmony_does_not_end_the_answer) {
  TestingVocabulary phi = chatml_vocabulary(), harmony = chatml_vocabulary();
  const TokenId end = phi.add("<|end|>", TokenType::kControl);
  EXPECT_TRUE(phi.must_load().is_end_of_generation(end));
  harmony.add("<|end|>", TokenType::kControl);
  const TokenId give_back = harmony.add("<|return|>", TokenType::kControl);
  const TokenId call = harmony.add("<|call|>", TokenType::kControl);
  const Tokenizer t = harmony.must_load();
  EXPECT_FALSE(t.is_end_of_generation(end));
  EXPECT_TRUE(t.is_end_of_generation(give_back));
  EXPECT_TRUE(t.is_end_of_generation(call));
}

TEST(SpecialTokens, structural_token_called_user_defined_is_treated_as_control) {
  TestingVocabulary v = chatml_vocabulary();
  const TokenId id = v.add("<|tool_response>", TokenType::kUserDefined);
  const Tokenizer t = v.must_load();
  EXPECT_EQ(t.token_type(id), TokenType::kControl);
  EXPECT_TRUE(t.is_end_of_generation(id));
  EXPECT_THAT(encode(t, "<|tool_response>"), testing::Not(testing::Contains(id)));
}

/// Merging as the definition has it: again and again the leftmost of the pairs of lowest rank.
std::vector<std::string> merge_slowly(const std::vector<std::string>& merges, const std::string& word) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  for (;;) {
    size_t best_rank = merges.size(), best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto merge = std::find(merges.begin(), merges.end(), symbols[i] + " " + symbols[i + 1]);
      const size_t rank = size_t(merge - merges.begin());
      if (rank < best_rank) best_rank = rank, best = i;
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + std::ptrdiff_t(best) + 1);
  }
}

RC_GTEST_PROP(ByteLevelBpe, merges_as_the_definition_does, ()) {
  TestingVocabulary v = chatml_vocabulary();
  for (int i = *rc::gen::inRange(0, 12); i > 0; --i) {
    const auto letters = [] {
      return *rc::gen::nonEmpty(rc::gen::resize(3, rc::gen::container<std::string>(rc::gen::element('x', 'y', 'z'))));
    };
    const std::string left = letters(), right = letters();
    for (const std::string& part : {left, right}) {
      if (std::find(v.tokens.begin(), v.tokens.end(), part) == v.tokens.end()) v.add(part);
    }
    v.merge(left, right);
  }
  const std::vector<std::string> merges = v.merges;
  const Tokenizer t = v.must_load();
  const std::string word = *rc::gen::container<std::string>(rc::gen::element('x', 'y', 'z'));
  std::vector<std::string> texts;
  for (const TokenId id : encode(t, word)) texts.emplace_back(t.token_text(id));
  RC_ASSERT(texts == merge_slowly(merges, word));
}

std::string random_text() {
  const std::vector<std::string> parts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("hello", " world", "h", "ll", " ", "\n", "é", "你", "😀", "\xFF", "\x80", "1",
                                    "<think>", "<|im_end|>", "</s>", "<|im_", "end|>", ".", "aaa", "\t", "▁"));
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

RC_GTEST_PROP(RoundTrip, byte_level_decode_inverts_encode, ()) {
  static const Tokenizer t = chatml_vocabulary().must_load();
  const std::string text = random_text();
  RC_ASSERT(t.decode(encode(t, text, false), false) == text);
  RC_ASSERT(t.decode(encode(t, text, true), true) == text);
}

RC_GTEST_PROP(RoundTrip, sentencepiece_decode_inverts_encode_but_for_its_space_mark, ()) {
  static const Tokenizer t = llama_vocabulary().must_load();
  const std::string text = random_text();
  std::string expected = text;  // U+2581 in the text is a space to the vocabulary
  for (size_t at; (at = expected.find("▁")) != std::string::npos;) expected.replace(at, 3, " ");
  RC_ASSERT(t.decode(encode(t, text, false), false) == expected);
  RC_ASSERT(t.decode(encode(t, text, true), true) == expected);
}

RC_GTEST_PROP(Segments, any_cut_of_markup_or_input_gives_the_ids_of_the_flat_text, ()) {
  static const Tokenizer all[] = {chatml_vocabulary().must_load(), llama_vocabulary().must_load(),
                                  gemma4_vocabulary().must_load()};
  const std::string text = random_text();
  const std::vector<size_t> cuts =
      *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, text.size() + 1));
  std::vector<size_t> ends(cuts);
  ends.push_back(text.size());
  std::sort(ends.begin(), ends.end());
  for (const bool is_input : {false, true}) {
    std::vector<Segment> segments;
    size_t begin = 0;
    for (const size_t end : ends) {
      segments.push_back({text.substr(begin, end - begin), is_input});
      begin = end;
    }
    for (const Tokenizer& t : all) RC_ASSERT(t.encode(segments).value() == encode(t, text, !is_input));
  }
}

}  // namespace
}  // namespace honeycrisp::text
