#include "cli/answer/prompt.h"

#include "base/text_escape.h"
#include "cli/models/paths.h"

namespace honeycrisp::cli {
namespace {

constexpr size_t kTemplateLimit = size_t(4) << 20;  // bytes

}  // namespace

Result<std::string> read_template(const std::string& path) {
  HC_ASSIGN(std::string source, read_file(path, kTemplateLimit));
  if (source.empty()) return invalid("{}: the chat template is empty", escape_for_display(path));
  return source;
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
