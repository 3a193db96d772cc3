// `honeycrisp run`: one answer, streamed to stdout.
#include "base/text_escape.h"
#include "cli/answer/answer.h"
#include "cli/answer/prompt.h"
#include "cli/command.h"
#include "cli/models/resolve.h"
#include "cli/options.h"
#include "cli/term/interrupt.h"
#include "cli/term/messages.h"
#include "cli/term/terminal.h"

#include <fmt/format.h>
#include <memory>

namespace honeycrisp::cli {
namespace {

constexpr size_t kPromptLimit = size_t(256) << 20;  // bytes

struct RunArguments {
  ModelOptions model;
  AnswerOptions answer;
  std::optional<std::string> prompt, system, chat_template;
  bool raw = false, quiet = false;
};

/// The text to answer: -p, or stdin without its last newline. Empty only where --raw -p "" says that this is meant.
Result<std::string> read_prompt(const RunArguments& arguments) {
  if (arguments.prompt && (arguments.raw || !arguments.prompt->empty())) return *arguments.prompt;
  std::string text;
  if (!arguments.prompt) {
    HC_ASSIGN(text, read_stdin(kPromptLimit));
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty()) return invalid("the prompt is empty: give one with -p TEXT or on standard input");
  return text;
}

Result<std::vector<Token>> prompt_tokens(const RunArguments& arguments, const std::shared_ptr<Engine>& engine,
                                         const std::string& text) {
  if (!engine->info().has_vocabulary)
    return unsupported(
        "{}: the file has no vocabulary, so it cannot read or write text (`honeycrisp logits` works on token ids)",
        escape_for_display(engine->info().path));
  if (arguments.raw) return engine->tokenize_prompt(text);
  HC_ASSIGN(const std::optional<ChatEncoder> chat, find_chat_encoder(engine, arguments.chat_template));
  if (!chat) {
    if (arguments.system)
      return invalid("--system needs a chat template, and this model has none: give one with --chat-template FILE");
    if (!arguments.quiet)
      print_note(
          "This model has no chat template: the text is continued as it is (--chat-template FILE gives one, --raw "
          "says that this is meant)");
    return engine->tokenize_prompt(text);
  }
  std::vector<Message> messages;
  if (arguments.system) messages.push_back({"system", *arguments.system});
  messages.push_back({"user", text});
  return encode_conversation(*chat, messages);
}

Result<void> run(RunArguments arguments) {
  set_quiet(arguments.quiet);
  HC_ASSIGN(const std::string text, read_prompt(arguments));
  HC_ASSIGN(const std::string path, resolve_model_or_default(arguments.model.model));
  HC_ASSIGN(const std::shared_ptr<Engine> engine,
            load_engine(path, arguments.model, EngineOptions{}.chunk, /*sessions=*/1));
  HC_ASSIGN(const std::vector<Token> prompt, prompt_tokens(arguments, engine, text));
  HC_ASSIGN(const SamplingOptions sampling, sampling_options(arguments.answer));

  const InterruptScope interruptible(/*second_exits=*/true);
  Output out;
  Generation generation;
  {
    HC_ASSIGN(Session session, engine->new_session());
    HC_ASSIGN(generation, stream_answer(*engine, session, prompt, sampling, arguments.answer, out));
  }
  if (generation.finish_reason == FinishReason::kCancelled) return Fail(ErrorCode::kCancelled, "");
  if (arguments.quiet) return {};
  // The notes begin a line of their own also where they follow the answer into a file or a pipe.
  if (!out.terminal() && same_place(STDOUT_FILENO, STDERR_FILENO) && !generation.text.ends_with('\n'))
    HC_TRY(out.write("\n"));
  print_finish_note(generation, engine->info());
  SpeedLimit limit;
  std::vector<std::string> lines = speed_lines(generation, *engine, limit);
  lines.back() += fmt::format("; seed {}", arguments.answer.chosen_seed);
  for (const std::string& line : lines) print_note(line);
  return {};
}

}  // namespace

void add_run(CommandTree& tree) {
  auto arguments = std::make_shared<RunArguments>();
  CommandLine line = tree.add("run", "One answer to a prompt, streamed to stdout");
  line.text("-p,--prompt", arguments->prompt, "TEXT", "What to answer; without it, standard input is read to its end");
  line.text("--system", arguments->system, "TEXT", "System text before the prompt");
  line.flag("--raw", arguments->raw, "Continue the text as it is, without a chat template");
  line.text("--chat-template", arguments->chat_template, kTypeFile, "A Jinja chat template instead of the model's own");
  line.exclude("--chat-template", "--raw");
  line.exclude("--system", "--raw");
  line.flag("-q,--quiet", arguments->quiet, "Only the answer: no speed, no notes, no warnings");
  add_model_option(line, arguments->model);
  add_context_option(line, arguments->model);
  add_backend_option(line, arguments->model);
  add_kv_type_option(line, arguments->model);
  add_loading_options(line, arguments->model);
  add_answer_options(line, arguments->answer);
  line.footer(R"(Samplers apply in this order: logit bias, repeat penalty, top-k, top-p, min-p,
temperature.
The answer alone goes to stdout; speed and notes go to stderr. Where it can be
measured, speed is also given as a share of what the processor can read from
memory, because every token reads all weights once (of a mixture of experts,
those of the chosen ones).

Examples:
  honeycrisp run -p "Why is the sky blue?"
  echo "Summarise: ..." | honeycrisp run -m model.gguf --temp 0 -n 200
  honeycrisp run -m gemma3-270m --raw -p "The capital of France is" -n 20)");
  line.action([arguments] { return run(*arguments); },
              [arguments] {
                const bool nothing = !arguments->prompt && is_terminal(STDIN_FILENO);
                return nothing ? "a prompt is required: -p TEXT, or text on standard input" : "";
              });
}

}  // namespace honeycrisp::cli
