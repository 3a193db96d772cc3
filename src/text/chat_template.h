// The chat template of a model: messages to the text of a prompt, with the variables that `transformers` passes in
// apply_chat_template. What comes from the conversation stays marked as input, so that the tokenizer never reads
// control tokens out of it. Knows nothing of JSON: callers convert.
#pragma once

#include "base/result.h"
#include "text/jinja/template.h"
#include "text/segment.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::text {

struct ChatInput {
  jinja::Value messages;   // list of dicts: role, content, …
  jinja::Value tools;      // list of dicts, or none
  jinja::Value documents;  // list of dicts, or none
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;  // texts of the model's tokens
  /// More variables (enable_thinking, reasoning_effort, …); they win over the ones above.
  jinja::Dict extra;
};

/// Immutable and thread safe; cheap to copy.
class ChatTemplate {
 public:
  /// Errors: kInvalidInput, "chat template, line N: …".
  static Result<ChatTemplate> parse(std::string_view source);

  /// The prompt. Strings of messages, tools and documents, keys included, are input; everything else is not.
  /// Errors, as of jinja::Template::render: kInvalidInput with the template's own words where it refuses the
  /// conversation (raise_exception); kUnsupported or kOutOfMemory, "chat template, line N: …", where it fails.
  Result<std::vector<Segment>> render(const ChatInput& input, const jinja::RenderOptions& options = {}) const;

 private:
  explicit ChatTemplate(jinja::Template parsed) : template_(std::move(parsed)) {}
  jinja::Template template_;
};

}  // namespace honeycrisp::text
