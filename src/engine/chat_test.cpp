// Conversations to tokens: one BOS, content that stays text, templates that are absent, broken or refuse.
#include "engine/chat.h"

#include "engine/testing/toy_engine.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace honeycrisp::engine {
namespace {

using namespace toy;

constexpr const char* kTurns =
    "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}b{% endif %}";

/// An engine whose file carries the template, and what it makes of the messages.
Result<std::vector<Token>> encode(const std::string& chat_template, const std::vector<Message>& messages,
                                  bool add_bos = true, bool add_generation_prompt = true) {
  const ToyEngine toy({.context = 64, .chunk = 8}, kToyTokens, chat_template, add_bos);
  HC_ASSIGN(const ChatEncoder encoder, ChatEncoder::create(toy.shared()));
  return encoder.encode(messages, add_generation_prompt);
}

int64_t count(const std::vector<Token>& tokens, Token token) { return std::count(tokens.begin(), tokens.end(), token); }

TEST(Chat, bos_comes_exactly_once_from_template_or_tokenizer) {
  const std::vector<Message> messages = {{"user", "c"}};
  for (const std::string& start : {std::string("{{ bos_token }}"), std::string("<s>"), std::string()}) {
    const auto tokens = encode(start + kTurns, messages).value();
    EXPECT_EQ(tokens.front(), Token(kBos)) << start;
    EXPECT_EQ(count(tokens, kBos), 1) << start;
  }
  EXPECT_EQ(count(encode(kTurns, messages, false).value(), kBos), 0) << "the model does not ask for one";
  EXPECT_EQ(count(encode("<s>" + std::string(kTurns), messages, false).value(), kBos), 1) << "the template does";
}

TEST(Chat, special_tokens_in_content_stay_text) {
  const auto tokens = encode(kTurns, {{"user", "a<|im_end|><s>b"}, {"assistant", "<|im_end|>"}}).value();
  EXPECT_EQ(count(tokens, kImEnd), 2) << "one per turn";
  EXPECT_EQ(count(tokens, kBos), 1);
}

TEST(Chat, the_generation_prompt_is_as_asked) {
  const auto with = encode(kTurns, {{"user", "c"}}).value(),
             without = encode(kTurns, {{"user", "c"}}, true, false).value();
  EXPECT_EQ(with.back(), Token(kB));
  EXPECT_EQ(without.back(), Token(kImEnd));
}

TEST(Chat, a_missing_template_is_named_and_can_be_given) {
  const ToyEngine toy;
  EXPECT_FALSE(toy->info().has_chat_template);
  const Error error = ChatEncoder::create(toy.shared()).error();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_NE(error.message.find("--chat-template FILE"), std::string::npos);
  const ChatEncoder given = ChatEncoder::create(toy.shared(), kTurns).value();
  EXPECT_EQ(given.render(std::vector<Message>{{"user", "ab"}}).value(), "ab<|im_end|>b");
}

TEST(Chat, broken_and_refusing_templates_are_errors_with_their_words) {
  const ToyEngine toy;
  EXPECT_EQ(ChatEncoder::create(toy.shared(), "{% for %}").error().code, ErrorCode::kInvalidInput);
  const ChatEncoder refusing = ChatEncoder::create(toy.shared(), "{{ raise_exception('no turns') }}").value();
  const Error error = refusing.encode(std::vector<Message>{{"user", "a"}}).error();
  EXPECT_EQ(error.code, ErrorCode::kInvalidInput);
  EXPECT_EQ(error.message, "no turns");
}

TEST(Chat, variables_reach_the_template) {
  const ToyEngine toy;
  const ChatEncoder encoder =
      ChatEncoder::create(toy.shared(), "{% if enable_thinking %}a{% else %}b{% endif %}{{ tools | length }}").value();
  text::ChatInput input;
  input.messages = to_template_messages({});
  input.tools = text::jinja::Value::list({});
  input.extra.set("enable_thinking", true);
  const auto segments = encoder.impl().render(std::move(input)).value();
  std::string text;
  for (const text::Segment& segment : segments) text += segment.text;
  EXPECT_EQ(text, "a0");
}

}  // namespace
}  // namespace honeycrisp::engine
