// What stands behind honeycrisp/chat.h, for applications that have more than roles and texts: tools, documents, other
// variables of the template. Not part of the public API.
#pragma once

#include "text/chat_template.h"
#include <honeycrisp/chat.h>

namespace honeycrisp {

struct ChatEncoder::Impl {
  std::shared_ptr<const Engine> engine;
  text::ChatTemplate chat_template;

  /// As ChatEncoder::encode() and render(). bos_token and eos_token are filled in here.
  Result<std::vector<Token>> encode(text::ChatInput input) const;
  Result<std::vector<text::Segment>> render(text::ChatInput input) const;
};

namespace engine {

/// [{role, content}, …]
text::jinja::Value to_template_messages(std::span<const Message> messages);

}  // namespace engine
}  // namespace honeycrisp
