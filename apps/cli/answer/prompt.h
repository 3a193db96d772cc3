// From a conversation to the tokens that a model is prompted with: the chat template, the model's own or one from a
// file, and the tokenizer. Messages never become control tokens.
#pragma once

#include "base/result.h"
#include "text/jinja/template.h"
#include <honeycrisp/engine.h>

#include <optional>
#include <string>
#include <vector>

namespace honeycrisp::cli {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatPrompt {
 public:
  /// The template of `template_file`, or the model's own; nullopt if there is neither. `engine` must outlive it.
  static Result<std::optional<ChatPrompt>> create(const Engine& engine,
                                                  const std::optional<std::string>& template_file);

  /// The conversation so far and the beginning of an answer.
  Result<std::vector<Token>> tokens(const std::vector<ChatMessage>& messages) const;

 private:
  ChatPrompt(const Engine& engine, text::jinja::Template chat_template)
      : engine_(&engine), template_(std::move(chat_template)) {}

  const Engine* engine_;
  text::jinja::Template template_;
};

}  // namespace honeycrisp::cli
