#include "cli/app.h"

#include "cli/command.h"
#include "cli/term/interrupt.h"
#include "cli/term/messages.h"
#include "cli/term/terminal.h"

#include <CLI/CLI.hpp>
#include <clocale>
#include <new>
#include <sstream>
#include <string>

namespace honeycrisp::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  honeycrisp run -p "Why is the sky blue?"        one answer from the default model
  honeycrisp chat -m smollm2                      a conversation
  honeycrisp pull gemma3-270m                     fetch a model into the cache
  honeycrisp inspect model.gguf --program         what is in a file, and how it would run

Each subcommand explains itself: honeycrisp SUBCOMMAND --help
Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted.
Environment: HONEYCRISP_CACHE (where models are kept), HONEYCRISP_ISA (force an instruction set), NO_COLOR.)";

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
  root.get_formatter()->column_width(34);
  root.footer(kFooter);
  CommandTree tree(root);
  for (auto* add : {add_run, add_chat, add_pull, add_list, add_rm, add_inspect, add_tokenize, add_render, add_logits,
                    add_completions})
    add(tree);

  try {
    root.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    root.exit(e, text, text);
    const Result<void> written = Output().write(text.str());
    return written ? kExitOk : report(written.error());
  } catch (const CLI::ParseError& e) {
    const std::string command = command_path(parsed_subcommand(root));
    print_error(fmt::format("{} (see `{} --help`)", e.what(), command));
    return kExitUsage;
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
