// `honeycrisp render`: a chat template applied to messages given as JSON; the text that a model would be prompted with.
#include "base/text_escape.h"
#include "cli/answer/prompt.h"
#include "cli/command.h"
#include "cli/models/paths.h"
#include "cli/models/resolve.h"
#include "cli/options.h"
#include "cli/term/terminal.h"
#include "gguf/file.h"
#include "text/jinja/template.h"
#include "text/tokenizer.h"

#include <boost/json.hpp>
#include <memory>

namespace honeycrisp::cli {
namespace {

namespace json = boost::json;
namespace jinja = text::jinja;

constexpr size_t kJsonLimit = size_t(64) << 20;  // bytes

struct RenderArguments {
  ModelOptions model;
  std::optional<std::string> template_file, json_file;
};

/// Recursion is bounded by the parser's depth limit.
Result<jinja::Value> to_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return jinja::Value();
    case json::kind::bool_: return jinja::Value(value.get_bool());
    case json::kind::int64: return jinja::Value(value.get_int64());
    case json::kind::uint64:
      return unsupported("the number {} does not fit in 64 bits with a sign", value.get_uint64());
    case json::kind::double_: return jinja::Value(value.get_double());
    case json::kind::string: return jinja::Value(std::string(value.get_string()));
    case json::kind::array: {
      std::vector<jinja::Value> items;
      items.reserve(value.get_array().size());
      for (const json::value& item : value.get_array()) {
        HC_ASSIGN(jinja::Value converted, to_value(item));
        items.push_back(std::move(converted));
      }
      return jinja::Value::list(std::move(items));
    }
    case json::kind::object: {
      jinja::Dict entries;
      for (const auto& [key, item] : value.get_object()) {
        HC_ASSIGN(jinja::Value converted, to_value(item));
        entries.set(jinja::Value(std::string(key)), std::move(converted));
      }
      return jinja::Value::dict(std::move(entries));
    }
  }
  return fail(ErrorCode::kInternal, "an unknown kind of JSON value");
}

Result<json::object> parse_variables(const std::string& path, const std::string& text) {
  json::parse_options options;
  options.max_depth = jinja::kMaxValueDepth;
  boost::system::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error) return invalid("{}: not JSON: {}", escape_for_display(path), error.message());
  if (!value.is_object())
    return invalid("{}: expected a JSON object of the template's variables", escape_for_display(path));
  return std::move(value.get_object());
}

/// Adds the texts of a model's special tokens under the names templates know them by.
void set_special_tokens(const text::Tokenizer& tokenizer, jinja::Dict& variables) {
  const text::SpecialTokens& special = tokenizer.special();
  const std::pair<const char*, std::optional<text::TokenId>> names[] = {
      {"bos_token", special.bos}, {"eos_token", special.eos}, {"unk_token", special.unk}, {"pad_token", special.pad}};
  for (const auto& [name, id] : names)
    if (id) variables.set(name, jinja::Value(tokenizer.token_text(*id)));
}

Result<void> run(const RenderArguments& arguments) {
  HC_ASSIGN(const std::string text, read_user_file(*arguments.json_file, kJsonLimit));
  HC_ASSIGN(const json::object given, parse_variables(*arguments.json_file, text));
  // `transformers` always passes these, so templates may rely on them.
  jinja::Dict variables;
  variables.set("tools", jinja::Value());
  variables.set("documents", jinja::Value());
  variables.set("add_generation_prompt", jinja::Value(false));

  std::string source;
  if (arguments.template_file) {
    HC_ASSIGN(source, read_template(*arguments.template_file));
  }
  if (arguments.model.model || !arguments.template_file) {
    HC_ASSIGN(const std::string path, resolve_model_or_default(arguments.model.model));
    HC_ASSIGN(const gguf::File file, gguf::File::open(path));
    HC_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(file.metadata()));
    set_special_tokens(tokenizer, variables);
    HC_ASSIGN(const std::string_view own, file.metadata().get_string("tokenizer.chat_template", ""));
    if (source.empty()) source = own;
    if (source.empty())
      return invalid("{}: the model has no chat template: give one with --template FILE", escape_for_display(path));
  }
  for (const auto& [key, value] : given) {
    HC_ASSIGN(jinja::Value converted, to_value(value));
    variables.set(jinja::Value(std::string(key)), std::move(converted));
  }
  const Result<jinja::Template> parsed = jinja::Template::parse(source);
  if (!parsed) return fail(parsed.error().code, "chat template, {}", parsed.error().message);
  const Result<std::vector<text::Segment>> segments = parsed->render(variables);
  if (!segments) return tl::unexpected<Error>(explain_template_error(segments.error()));
  std::string rendered;
  for (const text::Segment& segment : *segments) rendered += segment.text;
  return Output().write_untrusted(rendered);
}

}  // namespace

void add_render(CommandTree& tree) {
  auto arguments = std::make_shared<RenderArguments>();
  CommandLine line = tree.add("render", "Apply a chat template to messages given as JSON");
  line.text("--template", arguments->template_file, kTypeFile,
            "A Jinja chat template to use instead of the model's own");
  line.text("--json", arguments->json_file, kTypeFile,
            "An object of the template's variables: messages, tools, add_generation_prompt and any other",
            CommandLine::Need::kRequired);
  add_model_option(line, arguments->model);
  line.footer(
      R"(The exact text goes to stdout, without a newline of its own. bos_token and
eos_token are the model's unless the JSON names others; --template without -m
knows no model.

Examples:
  echo '{"messages": [{"role": "user", "content": "Hi"}]}' > chat.json
  honeycrisp render -m smollm2 --json chat.json
  honeycrisp render --template chat_template.jinja --json chat.json)");
  line.action([arguments] { return run(*arguments); });
}

}  // namespace honeycrisp::cli
