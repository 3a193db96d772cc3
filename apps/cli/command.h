// What a subcommand is to the frame: a function that adds its options to the command line and leaves behind the action
// to run when it is chosen. One such function per file in commands/.
#pragma once

#include "base/result.h"

#include <functional>

namespace CLI {
class App;
}

namespace honeycrisp::cli {

/// Exit codes, as documented in --help.
inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells count

/// What a subcommand does once its options are parsed. A value is done; an error is shown on one line of stderr.
/// kCancelled is silent unless it has a message: the user interrupted, or whoever read stdout has left.
using Action = std::function<Result<void>()>;

void add_run(CLI::App& root, Action& chosen);
void add_chat(CLI::App& root, Action& chosen);
void add_inspect(CLI::App& root, Action& chosen);
void add_tokenize(CLI::App& root, Action& chosen);
void add_render(CLI::App& root, Action& chosen);
void add_logits(CLI::App& root, Action& chosen);
void add_pull(CLI::App& root, Action& chosen);
void add_list(CLI::App& root, Action& chosen);
void add_rm(CLI::App& root, Action& chosen);
void add_completions(CLI::App& root, Action& chosen);

}  // namespace honeycrisp::cli
