// What a subcommand is to the frame: a function that describes its options and leaves behind the action to run when it
// is chosen. One such function per file in commands/. CLI11 stays out of this header: its templates would otherwise be
// compiled again in every command.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace honeycrisp::cli {

/// Exit codes, as documented in --help.
inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells count

/// What a subcommand does once its options are parsed. A value is done; an error is shown on one line of stderr.
/// kCancelled is silent unless it has a message: the user interrupted, or whoever read stdout has left.
using Action = std::function<Result<void>()>;
/// Empty if all is well, else what is wrong with a value or a combination of options: wrong usage, exit code 2.
using UsageCheck = std::function<std::string()>;
using ValueCheck = std::function<std::string(const std::string& value)>;  // the option is named before its text

// Type names with a meaning to shell completion; choices are joined by |, others are only shown.
inline constexpr const char* kTypeFile = "FILE";
inline constexpr const char* kTypeModel = "MODEL";

/// One subcommand's options. Names are "-c,--context" for options and "NAME" for positional arguments. References must
/// live until the action has run. The last of several values counts, as usual for command lines.
class CommandLine {
 public:
  enum class Need { kOptional, kRequired };

  /// The options that follow are listed under this heading.
  void heading(const std::string& text) { heading_ = text; }

  void flag(const std::string& names, bool& value, const std::string& description);
  void text(const std::string& names, std::optional<std::string>& value, const std::string& type_name,
            const std::string& description, Need need = Need::kOptional, ValueCheck check = {});
  /// Repeatable, or a positional argument that takes the rest.
  void texts(const std::string& names, std::vector<std::string>& values, const std::string& type_name,
             const std::string& description, ValueCheck check = {});
  /// A whole number in [least, most].
  void integer(const std::string& names, int64_t& value, int64_t least, int64_t most, const std::string& description,
               const std::string& default_text);
  /// A finite decimal number in [least, most].
  void decimal(const std::string& names, double& value, double least, double most, const std::string& description,
               const std::string& default_text);
  /// One of `choices`; `value` as it is now is shown as the default.
  void choice(const std::string& names, std::string& value, const std::vector<std::string>& choices,
              const std::string& description);

  /// Two options that contradict each other, by one name of each.
  void exclude(const std::string& name, const std::string& other);
  void footer(const std::string& text);
  /// What happens when this subcommand is chosen.
  void action(Action action, UsageCheck check = {});

 private:
  friend class CommandTree;
  CommandLine(CLI::App& app, Action& chosen) : app_(app), chosen_(chosen) {}
  CLI::Option& finish(CLI::Option* option, const std::string& type_name, const std::string& default_text);

  CLI::App& app_;
  Action& chosen_;
  std::string heading_;
};

/// The whole command line.
class CommandTree {
 public:
  explicit CommandTree(CLI::App& root) : root_(root) {}
  CommandLine add(const std::string& name, const std::string& description);
  const CLI::App& root() const { return root_; }
  const Action& chosen() const { return chosen_; }

 private:
  CLI::App& root_;
  Action chosen_;
};

void add_run(CommandTree& tree);
void add_chat(CommandTree& tree);
void add_inspect(CommandTree& tree);
void add_tokenize(CommandTree& tree);
void add_render(CommandTree& tree);
void add_logits(CommandTree& tree);
void add_bench(CommandTree& tree);
void add_pull(CommandTree& tree);
void add_list(CommandTree& tree);
void add_rm(CommandTree& tree);
void add_completions(CommandTree& tree);

}  // namespace honeycrisp::cli
