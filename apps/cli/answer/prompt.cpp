#include "cli/answer/prompt.h"

#include "base/text_escape.h"
#include "cli/models/paths.h"

namespace honeycrisp::cli {
namespace {

constexpr size_t kTemplateLimit = size_t(4) << 20;  // bytes

}  // namespace

Result<std::string> read_template(const std::string& path) {
  HC_ASSIGN(std::string source, read_user_file(path, kTemplateLimit));
  if (source.empty()) return invalid("{}: the chat template is empty", escape_for_display(path));
  return source;
}

Error explain_template_error(Error error) {
  if (error.code == ErrorCode::kInvalidInput)  // raise_exception: the words are the template author's
    error.message.insert(0, "the chat template refuses this conversation: ");
  else if (error.message.starts_with("line "))
    error.message.insert(0, "chat template, ");
  return error;
}

Result<std::vector<Token>> encode_conversation(const ChatEncoder& encoder, std::span<const Message> messages) {
  Result<std::vector<Token>> tokens = encoder.encode(messages);
  if (!tokens) return tl::unexpected<Error>(explain_template_error(std::move(tokens).error()));
  return tokens;
}

Result<std::optional<ChatEncoder>> find_chat_encoder(std::shared_ptr<const Engine> engine,
                                                     const std::optional<std::string>& template_file) {
  std::string source;
  if (template_file) {
    HC_ASSIGN(source, read_template(*template_file));
  } else if (!engine->info().has_chat_template) {
    return std::optional<ChatEncoder>();
  }
  HC_ASSIGN(ChatEncoder encoder, ChatEncoder::create(std::move(engine), source));
  return std::optional(std::move(encoder));
}

}  // namespace honeycrisp::cli
