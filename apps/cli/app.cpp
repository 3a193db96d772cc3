#include "cli/app.h"

#include "base/text_escape.h"
#include "cli/command.h"
#include "cli/term/interrupt.h"
#include "cli/term/messages.h"
#include "cli/term/terminal.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <clocale>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace honeycrisp::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  honeycrisp run -p "Why is the sky blue?"    one answer from the default model
  honeycrisp chat -m smollm2                  a conversation
  honeycrisp pull gemma3-270m                 fetch a model into the cache
  honeycrisp inspect model.gguf --program     what is in a file, how it runs
  honeycrisp bench -m smollm2                 how fast it is, and could be, here

Each subcommand explains itself: honeycrisp SUBCOMMAND --help
Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted.
Environment: HONEYCRISP_CACHE (where models are kept), HONEYCRISP_ISA (force an
instruction set: scalar, avx2, …; an unknown one lists those of this machine),
NO_COLOR.)";

/// Help in lines of the terminal's width, at most kHelpColumns.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(kNameColumns);
    text_columns_ = std::min(terminal_width(STDOUT_FILENO), kHelpColumns);
    text_columns_ = std::max(text_columns_, kNameColumns + kLeastTextColumns) - kNameColumns;
  }
  std::string make_option_desc(const CLI::Option* option) const override { return wrapped(option->get_description()); }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_display_name(true), wrapped(command->get_description()), column_width_);
    return out.str();
  }

 private:
  static constexpr size_t kNameColumns = 34, kHelpColumns = 100, kLeastTextColumns = 20;

  // Help is plain ASCII: a byte is a column.
  std::string wrapped(const std::string& text) const {
    std::istringstream words(text);
    std::string out, word;
    for (size_t column = 0; words >> word; column += word.size()) {
      if (column != 0 && column + 1 + word.size() > text_columns_) {
        out += '\n';
        column = 0;
      } else if (column != 0) {
        out += ' ';
        ++column;
      }
      out += word;
    }
    return out;
  }

  size_t text_columns_;
};

/// The innermost subcommand that was being parsed: whose --help to point at.
const CLI::App* parsed_subcommand(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return app;
}

std::string command_path(const CLI::App* app) {
  std::string path = app->get_name();
  for (const CLI::App* parent = app->get_parent(); parent != nullptr; parent = parent->get_parent())
    path = parent->get_name() + " " + path;
  return path;
}

/// Options that other programs have and this one has not, and what to do instead.
struct ForeignOption {
  std::string_view name, hint;
};
constexpr std::string_view kWholeModel =
    "a model runs whole on one device: the default, --backend auto, takes a GPU that can run it";
constexpr ForeignOption kForeignOptions[] = {
    {"-ngl", kWholeModel},
    {"--gpu-layers", kWholeModel},
    {"--n-gpu-layers", kWholeModel},
    {"--ctx-size", "-c gives the context"},
    {"--n-predict", "-n limits the answer"},
    {"-ctk", "--kv-type gives the type of keys and values"},
    {"-ctv", "--kv-type gives the type of keys and values"},
    {"--cache-type-k", "--kv-type gives the type of keys and values"},
    {"--cache-type-v", "--kv-type gives the type of keys and values"},
    {"-cnv", "`honeycrisp chat` has conversations"},
    {"-fa", "attention is always computed in tiles"},
    {"--flash-attn", "attention is always computed in tiles"},
};

const ForeignOption* find_foreign(const std::vector<const char*>& words) {
  for (const std::string_view word : words)
    for (const ForeignOption& option : kForeignOptions)
      if (word.substr(0, word.find('=')) == option.name) return &option;
  return nullptr;
}

/// What was wrong with the command line, where CLI11's own words are no help: it names stray words in reverse, and of
/// an unknown subcommand says only that one is missing.
std::string explain(const CLI::ParseError& error, const CLI::App& root, const CLI::App& parsed,
                    const std::vector<const char*>& words) {
  // First, because CLI11 takes -ngl for -n with the value "gl".
  if (const ForeignOption* foreign = find_foreign(words))
    return fmt::format("\"{}\" is not an option: {}", foreign->name, foreign->hint);
  const std::vector<std::string> stray = root.remaining(/*recurse=*/true);
  if (stray.empty() || (&parsed != &root && error.get_exit_code() != int(CLI::ExitCodes::ExtrasError)))
    return error.what();
  const std::string first = "\"" + escape_for_display(stray.front(), 60) + "\"";
  if (stray.front().starts_with('-')) {
    const bool too_early = parsed.get_option_no_throw(stray.front()) != nullptr || &parsed == &root;
    return first + (too_early ? " is not an option here: a subcommand comes first" : " is not an option");
  }
  if (&parsed == &root) return first + " is not a subcommand";
  const CLI::Option* prompt = parsed.get_option_no_throw("--prompt");  // a text, or bench's number of tokens
  if (prompt != nullptr && prompt->get_type_name() == "TEXT")
    return first + " was not expected: a model goes after -m, a prompt in quotes after -p";
  const bool has_model = parsed.get_option_no_throw("--model") != nullptr;
  return first + " was not expected" + (has_model ? ": a model goes after -m" : "");
}

int report_usage(const CLI::ParseError& error, const CLI::App& root, const std::vector<const char*>& words) {
  const CLI::App* parsed = parsed_subcommand(root);
  print_error(fmt::format("{} (see `{} --help`)", explain(error, root, *parsed, words), command_path(parsed)));
  return kExitUsage;
}

/// `help SUBCOMMAND`, as other programs have it, is SUBCOMMAND --help.
std::vector<const char*> command_words(int argc, char** argv) {
  std::vector<const char*> words(argv, argv + argc);
  if (words.size() > 1 && std::string_view(words[1]) == "help") {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  return words;
}

int report(const Error& error) {
  const bool interrupted = interrupt_requested();
  if (error.code != ErrorCode::kCancelled) {
    print_error(error.message);
    return interrupted ? kExitInterrupted : kExitError;
  }
  if (!error.message.empty()) print_error(error.message);
  return interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace

int run_app(int argc, char** argv) {
  // Only how characters are classified and shown: numbers keep their dots whatever the user's language.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  install_signal_handlers();
  install_log_handler();

  CLI::App root{"Runs quantized language models from GGUF files on this machine.", "honeycrisp"};
  root.set_version_flag("--version", "honeycrisp " HONEYCRISP_VERSION);
  root.require_subcommand(1);
  root.formatter(std::make_shared<HelpFormatter>());
  root.footer(kFooter);
  CommandTree tree(root);
  for (auto* add : {add_run, add_chat, add_pull, add_list, add_rm, add_inspect, add_tokenize, add_render, add_logits,
                    add_bench, add_completions})
    add(tree);

  const std::vector<const char*> words = command_words(argc, argv);
  try {
    root.parse(int(words.size()), words.data());
  } catch (const CLI::Success& e) {  // --help, --version
    if (root.get_subcommands().empty() && !root.remaining().empty()) return report_usage(e, root, words);
    std::ostringstream text;
    root.exit(e, text, text);
    const Result<void> written = Output().write(text.str());
    return written ? kExitOk : report(written.error());
  } catch (const CLI::ParseError& e) {
    return report_usage(e, root, words);
  }

  try {
    if (const Result<void> result = tree.chosen()(); !result) return report(result.error());
  } catch (const std::bad_alloc&) {
    print_error("out of memory: try a smaller context (-c) or a smaller model");
    return kExitError;
  }
  return interrupt_requested() ? kExitInterrupted : kExitOk;
}

}  // namespace honeycrisp::cli
