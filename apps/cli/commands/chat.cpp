// `honeycrisp chat`: a conversation in the terminal, or line by line from a pipe.
#include "base/text_escape.h"
#include "cli/answer/prompt.h"
#include "cli/chat/commands.h"
#include "cli/chat/conversation.h"
#include "cli/chat/line_editor.h"
#include "cli/command.h"
#include "cli/models/paths.h"
#include "cli/models/resolve.h"
#include "cli/options.h"
#include "cli/term/interrupt.h"
#include "cli/term/messages.h"
#include "cli/term/terminal.h"

#include <fmt/format.h>
#include <memory>

namespace honeycrisp::cli {
namespace {

struct ChatArguments {
  ModelOptions model;
  AnswerOptions answer;
  std::optional<std::string> system, chat_template;
  bool quiet = false;
};

/// The loop of typing and answering.
class ChatLoop {
 public:
  ChatLoop(Conversation& conversation, const Engine& engine, bool quiet, LineEditor& editor)
      : conversation_(conversation), engine_(engine), quiet_(quiet), editor_(editor) {}

  Result<void> run() {
    while (!leaving_) {
      reset_interrupt();
      const LineEditor::Input input = editor_.read(assembler_.in_progress() ? "… " : "> ");
      if (input.status == LineEditor::Status::kEnd) {
        if (editor_.interactive()) write_all(STDERR_FILENO, "\n");  // Ctrl-D leaves the cursor behind the prompt
        break;
      }
      if (input.status == LineEditor::Status::kInterrupted) {
        if (input.line.empty() && !assembler_.in_progress()) print_note("Ctrl-D or /exit leaves");
        assembler_.reset();
        continue;
      }
      editor_.remember(input.line);
      HC_TRY(take_line(input.line));
    }
    reset_interrupt();
    // Someone at a terminal has seen each error; a script sees the exit code.
    if (unanswered_ > 0 && !editor_.interactive())
      return invalid("{} {} no answer", unanswered_, unanswered_ == 1 ? "message got" : "messages got");
    return {};
  }

 private:
  /// Errors are those that end the chat; others are shown and the chat goes on.
  Result<void> take_line(const std::string& line) {
    const bool begins = !assembler_.in_progress();
    const std::optional<std::string> whole = assembler_.add(line);
    if (!whole) return {};
    const ParsedLine parsed = begins ? parse_chat_line(*whole) : ParsedLine{std::nullopt, *whole};
    if (parsed.unknown_command) {
      ++unanswered_;
      print_error(fmt::format("unknown command {} (/help lists them; // begins a message with a slash)",
                              escape_for_display(parsed.text, 60)));
      return {};
    }
    if (parsed.command) return obey(*parsed.command, parsed.text);
    if (parsed.text.find_first_not_of(" \t\n") == std::string::npos) return {};
    return show(conversation_.say(parsed.text, out_));
  }

  Result<void> obey(ChatCommand command, const std::string& argument) {
    switch (command) {
      case ChatCommand::kHelp: return print_help();
      case ChatCommand::kSystem: set_system(argument); return {};
      case ChatCommand::kRegenerate: return show(conversation_.regenerate(out_));
      case ChatCommand::kSave: save(argument); return {};
      case ChatCommand::kClear:
        conversation_.clear();
        print_note("The conversation is forgotten");
        return {};
      case ChatCommand::kExit: leaving_ = true; return {};
    }
    return {};
  }

  Result<void> print_help() {
    write_all(STDERR_FILENO, chat_help());
    return {};
  }

  void set_system(const std::string& text) {
    if (!text.empty()) conversation_.set_system(text);
    const std::string& system = conversation_.system();
    print_note(system.empty() ? "No system text is set; the model's template may bring its own"
                              : "System text: " + system);
  }

  void save(const std::string& path) {
    const Result<void> saved = save_conversation(conversation_.messages(), path);
    if (saved)
      print_note(fmt::format("Saved to {}{}", path, conversation_.messages().empty() ? ", an empty conversation" : ""));
    else
      print_error(saved.error().message);
  }

  Result<void> show(const Result<Generation>& generation) {
    if (!generation) {
      if (generation.error().code == ErrorCode::kCancelled || generation.error().code == ErrorCode::kIo)
        return tl::unexpected<Error>(generation.error());  // stdout has gone
      ++unanswered_;
      print_error(generation.error().message);
      if (generation.error().code == ErrorCode::kContextFull) print_note("/clear begins a new conversation");
      return {};
    }
    if (!out_.terminal()) HC_TRY(out_.write("\n"));  // parts the answers
    print_finish_note(*generation, engine_.info());
    if (!quiet_ && generation->finish_reason != FinishReason::kCancelled)
      for (const std::string& line : speed_lines(*generation, engine_, limit_)) print_note(line);
    return {};
  }

  Conversation& conversation_;
  const Engine& engine_;
  SpeedLimit limit_;
  bool quiet_;
  LineEditor& editor_;
  Output out_;
  MessageAssembler assembler_;
  bool leaving_ = false;
  size_t unanswered_ = 0;  // messages
};

Result<void> run(ChatArguments arguments) {
  HC_ASSIGN(const std::string path, resolve_model_or_default(arguments.model.model));
  HC_ASSIGN(const std::shared_ptr<Engine> engine,
            load_engine(path, arguments.model, EngineOptions{}.chunk, /*sessions=*/1));
  const ModelInfo& info = engine->info();
  if (!info.has_vocabulary)
    return unsupported("{}: the file has no vocabulary, so it cannot chat", escape_for_display(path));
  HC_ASSIGN(std::optional<ChatEncoder> encoder, find_chat_encoder(engine, arguments.chat_template));
  if (!encoder)
    return unsupported(
        "{}: the model has no chat template, so it cannot chat: give one with --chat-template FILE, or use "
        "`honeycrisp run`",
        escape_for_display(path));
  HC_ASSIGN(SamplingOptions sampling, sampling_options(arguments.answer));
  HC_TRY(validate(sampling, info.vocabulary));
  HC_ASSIGN(Session session, engine->new_session());
  Conversation conversation(*engine, std::move(session), std::move(*encoder), std::move(sampling), arguments.answer);
  conversation.set_system(arguments.system.value_or(""));

  const InterruptScope interruptible(/*second_exits=*/false);
  const Result<std::string> state = state_folder();
  LineEditor editor(state ? *state + "/history" : "");
  if (editor.interactive() && !arguments.quiet)
    for (const std::string& note : {(info.name.empty() ? info.architecture : info.name) + " on " + info.backend,
                                    std::string("/help lists commands, Ctrl-D leaves.")})
      print_note(note);
  return ChatLoop(conversation, *engine, arguments.quiet, editor).run();
}

}  // namespace

void add_chat(CommandTree& tree) {
  auto arguments = std::make_shared<ChatArguments>();
  CommandLine line = tree.add("chat", "A conversation, with history and line editing");
  line.text("--system", arguments->system, "TEXT", "System text at the beginning");
  line.text("--chat-template", arguments->chat_template, kTypeFile, "A Jinja chat template instead of the model's own");
  line.flag("-q,--quiet", arguments->quiet, "No speed after each answer");
  add_model_option(line, arguments->model);
  add_context_option(line, arguments->model);
  add_backend_option(line, arguments->model);
  add_kv_type_option(line, arguments->model);
  add_loading_options(line, arguments->model);
  add_answer_options(line, arguments->answer);
  line.footer("In a chat:\n" + chat_help() + R"(
Lines typed are kept in $XDG_STATE_HOME/honeycrisp/history. Without a terminal,
each line of stdin is a message.

Examples:
  honeycrisp chat
  honeycrisp chat -m model.gguf --system "Answer in one sentence."
  printf 'Hi\nWho are you?\n' | honeycrisp chat -m smollm2 --temp 0)");
  line.action([arguments] { return run(*arguments); });
}

}  // namespace honeycrisp::cli
