#include "cli/answer/prompt.h"

#include "cli/models/paths.h"
#include "engine/internals.h"

namespace honeycrisp::cli {
namespace {

namespace jinja = text::jinja;
constexpr size_t kTemplateLimit = size_t(4) << 20;  // bytes

}  // namespace

Result<std::optional<ChatPrompt>> ChatPrompt::create(const Engine& engine,
                                                     const std::optional<std::string>& template_file) {
  std::string source;
  if (template_file) {
    HC_ASSIGN(source, read_file(*template_file, kTemplateLimit));
  } else {
    HC_ASSIGN(source, engine.internals().file.metadata().get_string("tokenizer.chat_template", ""));
    if (source.empty()) return std::optional<ChatPrompt>();
  }
  Result<jinja::Template> parsed = jinja::Template::parse(source);
  if (!parsed) return fail(parsed.error().code, "the chat template cannot be read: {}", parsed.error().message);
  return std::optional(ChatPrompt(engine, std::move(*parsed)));
}

Result<std::vector<Token>> ChatPrompt::tokens(const std::vector<ChatMessage>& messages) const {
  const text::Tokenizer& tokenizer = engine_->internals().tokenizer;
  const text::SpecialTokens& special = tokenizer.special();
  std::vector<jinja::Value> list;
  for (const ChatMessage& message : messages) {
    jinja::Dict entry;
    entry.set("role", message.role);
    entry.set("content", jinja::mark_input(jinja::Value(message.content)));
    list.push_back(jinja::Value::dict(std::move(entry)));
  }
  jinja::Dict variables;
  variables.set("messages", jinja::Value::list(std::move(list)));
  variables.set("tools", jinja::Value());
  variables.set("documents", jinja::Value());
  variables.set("add_generation_prompt", jinja::Value(true));
  if (special.bos) variables.set("bos_token", jinja::Value(tokenizer.token_text(*special.bos)));
  if (special.eos) variables.set("eos_token", jinja::Value(tokenizer.token_text(*special.eos)));
  const Result<std::vector<text::Segment>> segments = template_.render(variables);
  if (!segments) return fail(segments.error().code, "the chat template failed: {}", segments.error().message);
  HC_ASSIGN(std::vector<Token> tokens, tokenizer.encode(*segments));
  const bool wants_bos = special.add_bos && special.bos;
  if (wants_bos && (tokens.empty() || tokens.front() != *special.bos)) tokens.insert(tokens.begin(), *special.bos);
  return tokens;
}

}  // namespace honeycrisp::cli
