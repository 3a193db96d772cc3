#include "text/chat_template.h"

#include <utility>

namespace honeycrisp::text {
namespace {

Error with_place(Error error) {
  error.message.insert(0, "chat template, ");
  return error;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  auto parsed = jinja::Template::parse(source);
  if (!parsed) return tl::unexpected<Error>(with_place(std::move(parsed).error()));
  return ChatTemplate(std::move(*parsed));
}

Result<std::vector<Segment>> ChatTemplate::render(const ChatInput& input, const jinja::RenderOptions& options) const {
  jinja::Dict variables;
  variables.set("messages", jinja::mark_input(input.messages));
  variables.set("tools", jinja::mark_input(input.tools));
  variables.set("documents", jinja::mark_input(input.documents));
  variables.set("add_generation_prompt", input.add_generation_prompt);
  variables.set("bos_token", input.bos_token);
  variables.set("eos_token", input.eos_token);
  for (const auto& [name, value] : input.extra.entries()) variables.set(name, value);
  auto rendered = template_.render(variables, options);
  if (!rendered && rendered.error().code != ErrorCode::kInvalidInput) {
    return tl::unexpected<Error>(with_place(std::move(rendered).error()));
  }
  return rendered;
}

}  // namespace honeycrisp::text
