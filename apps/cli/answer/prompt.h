// Which chat template a command uses: the one of a file, or the model's own.
#pragma once

#include "base/result.h"
#include <honeycrisp/chat.h>

#include <memory>
#include <optional>
#include <string>

namespace honeycrisp::cli {

/// nullopt if neither a file is given nor the model has a template.
Result<std::optional<ChatEncoder>> find_chat_encoder(std::shared_ptr<const Engine> engine,
                                                     const std::optional<std::string>& template_file);

/// The template in a file; the error says if it is empty.
Result<std::string> read_template(const std::string& path);

}  // namespace honeycrisp::cli
