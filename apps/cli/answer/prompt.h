// Which chat template a command uses: the one of a file, or the model's own.
#pragma once

#include "base/result.h"
#include <honeycrisp/chat.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace honeycrisp::cli {

/// nullopt if neither a file is given nor the model has a template.
Result<std::optional<ChatEncoder>> find_chat_encoder(std::shared_ptr<const Engine> engine,
                                                     const std::optional<std::string>& template_file);

/// The conversation as tokens, ready for the answer. Errors say that they are the template's.
Result<std::vector<Token>> encode_conversation(const ChatEncoder& encoder, std::span<const Message> messages);
/// An error of a render, in words for someone who does not know whose words they are.
Error explain_template_error(Error error);

/// The template in a file; the error says if it is empty.
Result<std::string> read_template(const std::string& path);

}  // namespace honeycrisp::cli
