// See honeycrisp/chat.h and engine/chat.h.
#include "engine/chat.h"

#include "base/result.h"
#include "engine/internals.h"

namespace honeycrisp {
namespace {

/// The template that a model file carries.
Result<std::string_view> find_template(const Engine& engine) {
  const gguf::Metadata& metadata = engine.internals().file.metadata();
  if (metadata.find(engine::kChatTemplateKey) == nullptr)
    return fail(ErrorCode::kNotFound, "{} has no chat template: give one with --chat-template FILE", metadata.source());
  return metadata.require_string(engine::kChatTemplateKey);
}

std::string token_text(const text::Tokenizer& tokenizer, std::optional<text::TokenId> token) {
  return token ? std::string(tokenizer.token_text(*token)) : std::string();
}

text::ChatInput make_input(std::span<const Message> messages, bool add_generation_prompt) {
  text::ChatInput input;
  input.messages = engine::to_template_messages(messages);
  input.add_generation_prompt = add_generation_prompt;
  return input;
}

}  // namespace

text::jinja::Value engine::to_template_messages(std::span<const Message> messages) {
  std::vector<text::jinja::Value> list;
  list.reserve(messages.size());
  for (const Message& message : messages) {
    text::jinja::Dict entry;
    entry.set("role", message.role);
    entry.set("content", message.content);
    list.push_back(text::jinja::Value::dict(std::move(entry)));
  }
  return text::jinja::Value::list(std::move(list));
}

Result<std::vector<text::Segment>> ChatEncoder::Impl::render(text::ChatInput input) const {
  const text::Tokenizer& tokenizer = engine->internals().tokenizer;
  input.bos_token = token_text(tokenizer, tokenizer.special().bos);
  input.eos_token = token_text(tokenizer, tokenizer.special().eos);
  return chat_template.render(input);
}

Result<std::vector<Token>> ChatEncoder::Impl::encode(text::ChatInput input) const {
  HC_ASSIGN(const std::vector<text::Segment> segments, render(std::move(input)));
  const text::Tokenizer& tokenizer = engine->internals().tokenizer;
  HC_ASSIGN(std::vector<Token> tokens, tokenizer.encode(segments));
  engine::prepend_bos(tokenizer.special(), tokens);  // most templates write it themselves
  return tokens;
}

Result<ChatEncoder> ChatEncoder::create(std::shared_ptr<const Engine> engine, std::string_view template_source) {
  if (template_source.empty()) {
    HC_ASSIGN(template_source, find_template(*engine));
  }
  HC_ASSIGN(text::ChatTemplate parsed, text::ChatTemplate::parse(template_source));
  return ChatEncoder(std::make_shared<const Impl>(Impl{std::move(engine), std::move(parsed)}));
}

Result<std::vector<Token>> ChatEncoder::encode(std::span<const Message> messages, bool add_generation_prompt) const {
  return impl_->encode(make_input(messages, add_generation_prompt));
}

Result<std::string> ChatEncoder::render(std::span<const Message> messages, bool add_generation_prompt) const {
  HC_ASSIGN(const std::vector<text::Segment> segments, impl_->render(make_input(messages, add_generation_prompt)));
  std::string text;
  for (const text::Segment& segment : segments) text += segment.text;
  return text;
}

}  // namespace honeycrisp
