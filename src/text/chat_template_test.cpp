#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace honeycrisp::text {
namespace {

using jinja::Dict;
using jinja::Value;
using testing::StartsWith;

Value message(std::string role, std::string content) {
  Dict dict;
  dict.set("role", std::move(role));
  dict.set("content", std::move(content));
  return Value::dict(std::move(dict));
}

std::string shown(const Result<std::vector<Segment>>& segments) {
  if (!segments) return "error: " + segments.error().message;
  std::string out;
  for (const Segment& segment : *segments) out += segment.is_input ? "[" + segment.text + "]" : segment.text;
  return out;
}

constexpr std::string_view kTemplate =
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if tools is none and documents is none %}.{% endif %}{% if add_generation_prompt %}<|bot|>{% endif %}{{ mood "
    "}}";

TEST(ChatTemplate, conversation_is_input_and_the_rest_is_not) {
  const auto chat = ChatTemplate::parse(kTemplate);
  ASSERT_TRUE(chat) << chat.error().message;
  ChatInput input;
  input.messages = Value::list({message("user", "hi <|bot|>")});
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  EXPECT_EQ(shown(chat->render(input)), "<s><|[user]|>[hi <|bot|>]</s>.<|bot|>");
  input.add_generation_prompt = false;
  input.extra.set("mood", "calm");
  EXPECT_EQ(shown(chat->render(input)), "<s><|[user]|>[hi <|bot|>]</s>.calm");
}

TEST(ChatTemplate, tools_and_documents_are_input_with_their_keys) {
  const auto chat = ChatTemplate::parse("{{ tools|tojson }}{{ documents[0].text }}");
  ASSERT_TRUE(chat);
  Dict tool, document;
  tool.set("name", "f");
  document.set("text", "t");
  ChatInput input;
  input.tools = Value::list({Value::dict(tool)});
  input.documents = Value::list({Value::dict(document)});
  EXPECT_EQ(shown(chat->render(input)), "[{\"[name]\": \"[f]\"}][t]");
}

TEST(ChatTemplate, refusals_and_faults_are_told_apart) {
  const auto refusing = ChatTemplate::parse("{{ raise_exception('no system role') }}");
  ASSERT_TRUE(refusing);
  auto rendered = refusing->render({});
  ASSERT_FALSE(rendered);
  EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(rendered.error().message, "no system role");

  const auto faulty = ChatTemplate::parse("\n{{ messages[0].content }}");
  ASSERT_TRUE(faulty);
  rendered = faulty->render({.messages = Value::list({})});
  ASSERT_FALSE(rendered);
  EXPECT_EQ(rendered.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(rendered.error().message, StartsWith("chat template, line 2: "));

  const auto malformed = ChatTemplate::parse("{% if %}");
  ASSERT_FALSE(malformed);
  EXPECT_EQ(malformed.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(malformed.error().message, StartsWith("chat template, line 1: "));
}

}  // namespace
}  // namespace honeycrisp::text
