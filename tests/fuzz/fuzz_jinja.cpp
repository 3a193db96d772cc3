// Template source to parse and render. Any input must give text or an error, within small budgets.
#include "text/jinja/template.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

using honeycrisp::text::jinja::Dict;
using honeycrisp::text::jinja::RenderOptions;
using honeycrisp::text::jinja::Template;
using honeycrisp::text::jinja::Value;

namespace {

const Dict& variables() {
  static const Dict dict = [] {
    Dict function, tool, user, bot, all;
    function.set("name", "f");
    function.set("arguments", Value::dict({}));
    tool.set("function", Value::dict(function));
    tool.set("id", "123456789");
    user.set("role", "user");
    user.set("content", "Hello <|x|> \xC3\xA9\xFF \xF0\x9F\x99\x82");
    bot.set("role", "assistant");
    bot.set("content", Value());
    bot.set("tool_calls", Value::list({Value::dict(tool)}));
    all.set("messages", honeycrisp::text::jinja::mark_input(Value::list({Value::dict(user), Value::dict(bot)})));
    all.set("tools", Value::list({Value::dict(tool)}));
    all.set("add_generation_prompt", true);
    all.set("bos_token", "<s>");
    all.set("l", Value::list({Value(3), Value(1.5), Value("b"), Value(true)}));
    all.set("d", Value::dict(function));
    all.set("n", 7);
    return all;
  }();
  return dict;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = Template::parse({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  RenderOptions options;
  options.limits.steps = 20'000;
  options.limits.text_bytes = 1 << 20;
  options.limits.output_bytes = 1 << 16;
  const auto rendered = parsed->render(variables(), options);
  if (!rendered) return 0;
  bool was_input = !rendered->empty() && !rendered->front().is_input;
  for (const auto& segment : *rendered) {  // the promise of render(): no empty pieces, neighbours differ
    if (segment.text.empty() || segment.is_input == was_input) std::abort();
    was_input = segment.is_input;
  }
  return 0;
}
