// `honeycrisp completions`: completion scripts for shells, generated from the tree of subcommands and options itself,
// so that they cannot go stale. The type name of an option tells what its value may be (see options.h).
#include "cli/command.h"
#include "cli/options.h"
#include "cli/term/terminal.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <vector>

namespace honeycrisp::cli {
namespace {

enum class ValueKind { kNone, kFile, kModel, kChoices, kOther };

struct OptionEntry {
  std::vector<std::string> names;  // with their dashes
  std::string description;
  ValueKind kind = ValueKind::kNone;
  std::vector<std::string> choices;
};

struct CommandEntry {
  std::string name, description;
  std::vector<OptionEntry> options;
  ValueKind positional = ValueKind::kNone;
  std::vector<std::string> positional_choices;
};

std::string first_sentence(std::string text) { return text.substr(0, text.find_first_of(";:")); }

std::vector<std::string> split_choices(const std::string& text) {
  std::vector<std::string> choices;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('|', at), text.size());
    choices.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

ValueKind value_kind(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() == 0) return ValueKind::kNone;
  if (type == kTypeFile) return ValueKind::kFile;
  if (type == kTypeModel) return ValueKind::kModel;
  return type.find('|') != std::string::npos ? ValueKind::kChoices : ValueKind::kOther;
}

std::vector<CommandEntry> commands_of(const CLI::App& root) {
  std::vector<CommandEntry> commands;
  for (const CLI::App* app : root.get_subcommands({})) {
    CommandEntry command{app->get_name(), first_sentence(app->get_description()), {}, {}, {}};
    for (const CLI::Option* option : app->get_options()) {
      const ValueKind kind = value_kind(*option);
      const std::vector<std::string> choices =
          kind == ValueKind::kChoices ? split_choices(option->get_type_name()) : std::vector<std::string>();
      if (option->nonpositional()) {
        OptionEntry entry{{}, first_sentence(option->get_description()), kind, choices};
        for (const std::string& name : option->get_snames()) entry.names.push_back("-" + name);
        for (const std::string& name : option->get_lnames()) entry.names.push_back("--" + name);
        command.options.push_back(std::move(entry));
      } else {
        command.positional = kind;
        command.positional_choices = choices;
      }
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

std::string without_quotes(std::string text) {
  for (char& c : text)
    if (c == '\'' || c == '"' || c == '`' || c == '[' || c == ']' || c == '$' || c == '\\') c = ' ';
  return text;
}

// ---- bash

std::string bash_words(ValueKind kind, const std::vector<std::string>& choices) {
  switch (kind) {
    case ValueKind::kFile: return "COMPREPLY=($(compgen -f -- \"$cur\"))";
    case ValueKind::kModel:
      return "COMPREPLY=($(compgen -f -W \"$(honeycrisp list --names 2>/dev/null)\" -- \"$cur\"))";
    case ValueKind::kChoices: return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", fmt::join(choices, " "));
    case ValueKind::kNone:
    case ValueKind::kOther: return "COMPREPLY=()";
  }
  return "";
}

std::string bash_script(const std::vector<CommandEntry>& commands) {
  std::string names, cases;
  for (const CommandEntry& command : commands) {
    names += command.name + " ";
    std::string words, values;
    for (const OptionEntry& option : command.options) {
      words += fmt::format("{} ", fmt::join(option.names, " "));
      if (option.kind != ValueKind::kNone)
        values += fmt::format("        {}) {}; return ;;\n", fmt::join(option.names, "|"),
                              bash_words(option.kind, option.choices));
    }
    cases += fmt::format("    {})\n      case \"$prev\" in\n{}      esac\n", command.name, values);
    cases +=
        fmt::format("      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return; fi\n", words);
    cases += fmt::format("      {} ;;\n", bash_words(command.positional, command.positional_choices));
  }
  return fmt::format(R"(# bash completion of honeycrisp; load with: source <(honeycrisp completions bash)
_honeycrisp() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W '{}--help --version' -- "$cur")); return; fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
}}
complete -o filenames -F _honeycrisp honeycrisp
)",
                     names, cases);
}

// ---- zsh

std::string zsh_action(ValueKind kind, const std::vector<std::string>& choices) {
  switch (kind) {
    case ValueKind::kFile: return ":file:_files";
    case ValueKind::kModel: return ":model:_honeycrisp_models";
    case ValueKind::kChoices: return fmt::format(":value:({})", fmt::join(choices, " "));
    case ValueKind::kOther: return ":value:";
    case ValueKind::kNone: return "";
  }
  return "";
}

std::string zsh_script(const std::vector<CommandEntry>& commands) {
  std::string names, cases;
  for (const CommandEntry& command : commands) {
    names += fmt::format("      '{}:{}'\n", command.name, without_quotes(command.description));
    cases += fmt::format("    {}) _arguments \\\n", command.name);
    for (const OptionEntry& option : command.options)
      for (const std::string& name : option.names)
        cases += fmt::format("      '*{}[{}]{}' \\\n", name, without_quotes(option.description),
                             zsh_action(option.kind, option.choices));
    if (command.positional != ValueKind::kNone)
      cases += fmt::format("      '*{}' \\\n", zsh_action(command.positional, command.positional_choices));
    cases += "      ;;\n";
  }
  return fmt::format(R"(#compdef honeycrisp
# zsh completion of honeycrisp; save as _honeycrisp in a folder of $fpath
_honeycrisp_models() {{ _alternative 'models:model:($(honeycrisp list --names 2>/dev/null))' 'files:file:_files -g "*.gguf"' }}
_honeycrisp() {{
  if ((CURRENT == 2)); then
    local -a commands=(
{}    )
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{}  esac
}}
compdef _honeycrisp honeycrisp
)",
                     names, cases);
}

// ---- fish

std::string fish_arguments(ValueKind kind, const std::vector<std::string>& choices) {
  switch (kind) {
    case ValueKind::kFile: return " -r -F";
    case ValueKind::kModel: return " -r -F -a '(honeycrisp list --names 2>/dev/null)'";
    case ValueKind::kChoices: return fmt::format(" -x -a '{}'", fmt::join(choices, " "));
    case ValueKind::kOther: return " -x";
    case ValueKind::kNone: return "";
  }
  return "";
}

std::string fish_script(const std::vector<CommandEntry>& commands) {
  std::string text =
      "# fish completion of honeycrisp; load with: honeycrisp completions fish | source\n"
      "complete -c honeycrisp -f\n";
  for (const CommandEntry& command : commands) {
    text += fmt::format("complete -c honeycrisp -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                        without_quotes(command.description));
    const std::string when = fmt::format("complete -c honeycrisp -n '__fish_seen_subcommand_from {}'", command.name);
    for (const OptionEntry& option : command.options) {
      std::string names;
      for (const std::string& name : option.names)
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += fmt::format("{}{}{} -d '{}'\n", when, names, fish_arguments(option.kind, option.choices),
                          without_quotes(option.description));
    }
    if (command.positional != ValueKind::kNone && command.positional != ValueKind::kOther)
      text += when + fish_arguments(command.positional, command.positional_choices) + "\n";
  }
  return text;
}

}  // namespace

void add_completions(CommandTree& tree) {
  auto shell = std::make_shared<std::optional<std::string>>();
  CommandLine line = tree.add("completions", "Print a completion script for a shell");
  line.text("SHELL", *shell, "bash|zsh|fish", "Which shell", CommandLine::Need::kRequired, [](const std::string& name) {
    return name == "bash" || name == "zsh" || name == "fish" ? "" : "expected bash, zsh or fish";
  });
  line.footer(R"(Examples:
  source <(honeycrisp completions bash)                   in ~/.bashrc
  honeycrisp completions zsh > ~/.zfunc/_honeycrisp       with it in $fpath
  honeycrisp completions fish > ~/.config/fish/completions/honeycrisp.fish)");
  line.action([shell, &root = tree.root()] {
    const std::vector<CommandEntry> commands = commands_of(root);
    return Output().write(**shell == "bash"  ? bash_script(commands)
                          : **shell == "zsh" ? zsh_script(commands)
                                             : fish_script(commands));
  });
}

}  // namespace honeycrisp::cli
