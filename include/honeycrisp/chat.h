// From a conversation to prompt tokens, by the model's chat template.
#pragma once

#include "honeycrisp/engine.h"
#include "honeycrisp/result.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp {

struct Message {
  std::string role;     // "system", "user", "assistant", or what else the template knows
  std::string content;  // UTF-8; special tokens written in it stay text
};

/// A compiled chat template with the engine's tokenizer. Immutable and thread safe; keeps the engine alive.
class ChatEncoder {
 public:
  /// Takes the model's template, or the source of another one. Errors: kNotFound if there is none (the message tells
  /// how to give one), kInvalidInput with the line if it does not parse.
  static Result<ChatEncoder> create(std::shared_ptr<const Engine> engine, std::string_view template_source = {});

  /// Ids of the whole conversation. `add_generation_prompt`: it ends where the assistant's answer begins. BOS comes
  /// first exactly once: from the template, or added where the model asks for one. Never ends with an added EOS.
  /// Errors: kInvalidInput with the template's own words if it refuses the messages, kUnsupported if it fails.
  Result<std::vector<Token>> encode(std::span<const Message> messages, bool add_generation_prompt = true) const;
  /// The text that encode() tokenizes, for people.
  Result<std::string> render(std::span<const Message> messages, bool add_generation_prompt = true) const;

  struct Impl;  // for src/engine/chat.h, which also takes tools and other variables
  const Impl& impl() const { return *impl_; }

 private:
  explicit ChatEncoder(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace honeycrisp
